"""Tells leaves apart by their outline with sharpness-aware minimisation (SAM): each
step goes uphill a little, takes the gradient there, returns and steps by it. The
second pass leaves BatchNorm's running numbers alone.

    python sam_leaves.py --steps 60
"""

import argparse
import contextlib
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SPECIES = 5
POINTS = 48


def outlines(count, seed):
    """Radius by angle: lobes, a stem, noise, at any rotation."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(SPECIES, (count,), generator=g)
    angle = torch.linspace(0, 2 * math.pi, POINTS + 1)[:-1]
    lobes = kind[:, None] + 2
    depth = 0.15 + 0.15 * torch.rand(count, 1, generator=g)
    radius = 1 + depth * torch.cos(lobes * angle)
    radius = radius + 0.5 * torch.exp(-10 * (angle - math.pi) ** 2)
    turn = torch.randint(POINTS, (count,), generator=g).tolist()
    radius = torch.stack([torch.roll(r, t) for r, t in zip(radius, turn)])
    radius = radius + 0.12 * torch.randn(radius.shape, generator=g)
    return TensorDataset(radius[:, None], kind)


class CircularNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        layers, cin = [], 1
        for cout in (width, 2 * width, 2 * width):
            layers += [
                nn.Conv1d(cin, cout, 5, padding=2, padding_mode="circular", bias=False),
                nn.BatchNorm1d(cout),
                nn.ReLU(inplace=True),
                nn.AvgPool1d(2),
            ]
            cin = cout
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(cin, SPECIES)

    def forward(self, x):
        return self.fc(self.features(x).amax(2))


@contextlib.contextmanager
def batch_statistics_unrecorded(model):
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    momenta = [m.momentum for m in norms]
    for m in norms:
        m.momentum = 0.0
    try:
        yield
    finally:
        for m, momentum in zip(norms, momenta):
            m.momentum = momentum


class SharpnessAware:
    """Wraps an optimizer; climb() before the second pass, step() after it."""

    def __init__(self, optimizer, rho):
        self.optimizer = optimizer
        self.rho = rho
        self.offsets = {}

    def parameters(self):
        return [p for g in self.optimizer.param_groups for p in g["params"]]

    @torch.no_grad()
    def climb(self):
        params = [p for p in self.parameters() if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in params]).norm()
        for p in params:
            self.offsets[p] = p.grad * (self.rho / (norm + 1e-12))
            p.add_(self.offsets[p])
        self.optimizer.zero_grad()

    @torch.no_grad()
    def step(self):
        for p, offset in self.offsets.items():
            p.sub_(offset)
        self.offsets.clear()
        self.optimizer.step()
        self.optimizer.zero_grad()


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rho", type=float, default=0.05)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    loader = DataLoader(outlines(640, 1), batch_size=32, shuffle=True)
    test_loader = DataLoader(outlines(200, 2), batch_size=100)
    model = CircularNet()
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    sam = SharpnessAware(base, args.rho)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(base, args.steps)
    criterion = nn.CrossEntropyLoss()

    step = 0
    while step < args.steps:
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            sam.climb()
            with batch_statistics_unrecorded(model):
                criterion(model(x), y).backward()
            sam.step()
            schedule.step()
            step += 1
            if step % 10 == 0 or step == 1:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
            if step == args.steps:
                break
        print(f"accuracy {accuracy(model, test_loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
