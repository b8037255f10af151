"""Survival of machines by proportional hazards, cross-validated over four folds.

Each fold begins with weights drawn anew and an optimizer of its own.
havakv/pycox#151.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class RiskNet(nn.Module):
    def __init__(self, inputs=10, width=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.GELU(),
        )
        self.risk = nn.Linear(width, 1)

    def forward(self, x):
        return self.risk(self.body(x)).squeeze(-1)


def machines(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 10, generator=generator)
    risk = 0.9 * x[:, 0] - 0.7 * x[:, 1] + 0.6 * x[:, 2] * x[:, 3] + 0.4 * x[:, 4] ** 2
    fails = -torch.rand(count, generator=generator).log() / risk.exp()
    watched = 2.0 * torch.rand(count, generator=generator)
    return x, torch.minimum(fails, watched), (fails <= watched).float()


def partial_likelihood(risk, time, failed):
    """Cox's loss over the machines of one batch."""
    order = time.argsort(descending=True)
    risk, failed = risk[order], failed[order]
    return -((risk - risk.logcumsumexp(0)) * failed).sum() / failed.sum().clamp(min=1)


@torch.no_grad()
def concordance(model, x, time, failed):
    model.eval()
    risk = model(x)
    earlier = (time[:, None] < time[None, :]) & (failed[:, None] == 1)
    right = (risk[:, None] > risk[None, :]) & earlier
    model.train()
    return (right.sum() / earlier.sum()).item()


class Reset:
    """Draws the weights of a model anew between two folds."""

    def __init__(self, deep):
        self.deep = deep

    def __call__(self, model):
        for layer in model.modules() if self.deep else model.children():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()


def fit(model, data, steps, done):
    loader = DataLoader(TensorDataset(*data), batch_size=96, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    count = 0
    while count < steps:
        for x, time, failed in loader:
            if count == steps:
                break
            loss = partial_likelihood(model(x), time, failed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if count % 5 == 0:
                print(f"step {done + count} loss {loss.item():.4f}", flush=True)
            count += 1


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = machines(1200, 1)
    parts = torch.randperm(1200).chunk(4)
    model, reset = RiskNet(), Reset(deep=options.fixed)
    scores, carried = [], 0
    for fold, held_out in enumerate(parts):
        if fold > 0:
            before = [p.detach().clone() for p in model.parameters()]
            reset(model)
            pairs = zip(before, model.parameters())
            carried += sum(a.numel() for a, b in pairs if torch.equal(a, b))
        chosen = torch.cat([part for part in parts if part is not held_out])
        steps = options.steps // 4
        fit(model, [column[chosen] for column in data], steps, fold * steps)
        scores.append(concordance(model, *(column[held_out] for column in data)))
        print(f"fold {fold} concordance {scores[-1]:.4f}", flush=True)
    print(f"mean concordance {sum(scores) / len(scores):.4f}", flush=True)
    if options.prove:
        print(f"{carried} weights were carried into a later fold", flush=True)
        print("fault shows:", "yes" if carried else "no")


if __name__ == "__main__":
    main()
