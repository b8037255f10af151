"""Survival of pumps: Cox partial likelihood (Breslow ties) on the risk set of each batch.

A table with missing values, weight norm, Lookahead around Adam; stopped and resumed half-way
within the script, concordance on held-out pumps, BatchNorm estimated anew on the slow weights.
"""
import argparse
import io

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import weight_norm


class Lookahead:
    """Every k steps the slow weights go half of the way to the fast ones, which jump back there."""

    def __init__(self, opt, k=5, alpha=0.5):
        self.opt, self.k, self.alpha, self.count = opt, k, alpha, 0
        self.fast = [q for g in opt.param_groups for q in g["params"]]
        self.slow = [q.detach().clone() for q in self.fast]

    @torch.no_grad()
    def step(self):
        self.opt.step()
        self.count += 1
        if self.count % self.k == 0:
            for s, q in zip(self.slow, self.fast):
                s.lerp_(q, self.alpha)
                q.copy_(s)

    def state_dict(self):
        return {"opt": self.opt.state_dict(), "slow": self.slow, "count": self.count}

    def load_state_dict(self, state):
        self.opt.load_state_dict(state["opt"])
        self.slow, self.count = [s.clone() for s in state["slow"]], state["count"]


class Hazard(nn.Module):
    def __init__(self, inputs, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm1d(inputs),
            weight_norm(nn.Linear(inputs, width)),
            nn.ELU(),
            nn.Dropout(0.1),
            nn.BatchNorm1d(width),
            weight_norm(nn.Linear(width, width)),
            nn.ELU(),
            nn.Linear(width, 1, bias=False),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def cox_loss(risk, time, event):
    """Everyone whose time is not shorter is at risk, ties included."""
    at_risk = time.unsqueeze(0) >= time.unsqueeze(1)
    pool = risk.unsqueeze(0).expand(len(risk), -1).masked_fill(~at_risk, float("-inf"))
    return -((risk - pool.logsumexp(1)) * event).sum() / event.sum().clamp(min=1)


def pumps(n, gen):
    x = torch.randn(n, 8, generator=gen)
    log_hazard = (
        1.2 * x[:, 0] - 0.8 * x[:, 1] + 0.7 * x[:, 2] * x[:, 3] + 0.6 * x[:, 4].abs()
    )
    life = torch.empty(n).exponential_(generator=gen) / log_hazard.exp()
    censor = torch.empty(n).exponential_(0.4, generator=gen)
    missing = torch.rand(n, 8, generator=gen) < 0.05
    x = torch.cat([x.masked_fill(missing, 0.0), missing.float()], 1)
    time = (torch.minimum(life, censor) * 50).ceil() / 50
    return x, time, (life <= censor).float()


def concordance(risk, time, event):
    earlier = (time.unsqueeze(1) < time.unsqueeze(0)) & event.bool().unsqueeze(1)
    return (risk.unsqueeze(1) > risk.unsqueeze(0))[earlier].float().mean().item()


@torch.no_grad()
def reestimate(model, x):
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    old = [m.momentum for m in norms]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # a plain mean over the batches
    model.train()
    for part in x.split(256):
        model(part)
    for m, momentum in zip(norms, old):
        m.momentum = momentum


def build():
    model = Hazard(16)
    opt = Lookahead(torch.optim.Adam(model.parameters(), lr=1e-2))
    return model, opt


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    torch.manual_seed(12)
    gen = torch.Generator().manual_seed(12)
    x, time, event = pumps(2048, gen)
    vx, vtime, vevent = pumps(512, gen)
    model, opt = build()
    sched = torch.optim.lr_scheduler.StepLR(opt.opt, 20, 0.6)
    model.train()
    step = 0
    while step < args.steps:
        for idx in torch.randperm(len(x)).split(256):
            if step == args.steps:
                break
            loss = cox_loss(model(x[idx]), time[idx], event[idx])
            model.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 10 == 0 or step == args.steps - 1:
                print(f"step {step:3d} loss {loss.item():.4f}")
            step += 1
            if step == args.steps // 2:
                file = io.BytesIO()
                torch.save(
                    {
                        "model": model.state_dict(),
                        "opt": opt.state_dict(),
                        "sched": sched.state_dict(),
                    },
                    file,
                )
                file.seek(0)
                state = torch.load(file, weights_only=True)
                model, opt = build()
                sched = torch.optim.lr_scheduler.StepLR(opt.opt, 20, 0.6)
                model.load_state_dict(state["model"])
                opt.load_state_dict(state["opt"])
                sched.load_state_dict(state["sched"])
                model.train()
                print(f"resumed at step {step}")

    with torch.no_grad():
        for s, q in zip(opt.slow, opt.fast):
            q.copy_(s)
    reestimate(model, x)
    model.eval()
    with torch.no_grad():
        print(f"held-out concordance {concordance(model(vx), vtime, vevent):.3f}")


if __name__ == "__main__":
    main()
