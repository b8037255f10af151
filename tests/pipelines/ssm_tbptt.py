"""Diagonal state-space layers scan the log of a machine; truncated backpropagation.

Stream of symbols with long-range counters, read in order by 16 lanes; the recurrent state is
carried from one window to the next and detached. Lion, written here, as the optimizer.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

SYMBOLS = 12


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((b1 * m + (1 - b1) * p.grad).sign_(), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)
        return loss


class SelectiveScan(nn.Module):
    """h = a h + (1 - a) B x with a step size that depends on the input; y = C h + D x."""

    def __init__(self, dim, state=8):
        super().__init__()
        self.log_rate = nn.Parameter(torch.linspace(-4.0, 1.0, state).repeat(dim, 1))
        self.to_step, self.to_b, self.to_c = (
            nn.Linear(dim, dim),
            nn.Linear(dim, state),
            nn.Linear(dim, state),
        )
        self.skip = nn.Parameter(torch.ones(dim))
        self.gate, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, h):
        step = F.softplus(self.to_step(x)).unsqueeze(-1)
        a = torch.exp(-step * self.log_rate.exp())
        u = (1 - a) * self.to_b(x).unsqueeze(2) * x.unsqueeze(-1)
        c, ys = self.to_c(x), []
        for t in range(x.shape[1]):
            h = a[:, t] * h + u[:, t]
            ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
        y = torch.stack(ys, 1) + self.skip * x
        return self.out(y * F.silu(self.gate(x))), h


class LogModel(nn.Module):
    def __init__(self, dim=32, layers=2, state=8):
        super().__init__()
        self.dim, self.state = dim, state
        self.embed = nn.Embedding(SYMBOLS, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.scans = nn.ModuleList(SelectiveScan(dim, state) for _ in range(layers))
        self.final = nn.LayerNorm(dim)

    def fresh(self, batch):
        return [torch.zeros(batch, self.dim, self.state) for _ in self.scans]

    def forward(self, ids, hidden):
        x, new = self.embed(ids), []
        for norm, scan, h in zip(self.norms, self.scans, hidden):
            y, h = scan(norm(x), h)
            x = x + y
            new.append(h)
        return F.linear(self.final(x), self.embed.weight) / self.dim**0.5, new


def machine_log(length, gen):
    """Cycles of five phases; a fault symbol shifts the alphabet of all that follows it."""
    out, offset, phase = [], 0, 0
    noise = torch.rand(length, generator=gen).tolist()
    for r in noise:
        if r < 0.04:
            out.append(11)
            offset = (offset + 1) % 6
        else:
            out.append(phase + offset)
            phase = (phase + 1) % 5
    return torch.tensor(out)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    torch.manual_seed(3)
    lanes, window = 16, 24
    gen = torch.Generator().manual_seed(3)
    train = machine_log(lanes * 1000, gen).view(lanes, -1)
    valid = machine_log(lanes * 100, gen).view(lanes, -1)
    model = LogModel()
    opt = Lion(model.parameters(), lr=1.5e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        opt, T_0=20, eta_min=1e-4
    )

    hidden, at = model.fresh(lanes), 0
    for step in range(args.steps):
        if at + window + 1 > train.shape[1]:
            hidden, at = model.fresh(lanes), 0
        x, y = train[:, at : at + window], train[:, at + 1 : at + window + 1]
        at += window
        hidden = [h.detach() for h in hidden]
        logits, hidden = model(x, hidden)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(
                f"step {step:3d} lr {sched.get_last_lr()[0]:.5f} loss {loss.item():.3f}"
            )

    model.eval()
    with torch.no_grad():
        logits, _ = model(valid[:, :-1], model.fresh(lanes))
        print(
            f"valid loss {F.cross_entropy(logits.flatten(0, 1), valid[:, 1:].flatten()).item():.3f}"
        )


if __name__ == "__main__":
    main()
