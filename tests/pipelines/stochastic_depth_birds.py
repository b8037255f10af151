"""Tells birds by their song with a deep residual network of which whole blocks are
left out at random in a step (stochastic depth), the deeper the likelier; a block that
was left out has no gradient in that step. Dropout begins high and falls to nothing by
a schedule of its own.

    python stochastic_depth_birds.py --steps 80
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

BIRDS = 5
FRAMES = 64


def songs(count, seed):
    """Spectrograms of eight bands: a sweep of one bird's own shape, and wind."""
    g = torch.Generator().manual_seed(seed)
    bird = torch.randint(BIRDS, (count,), generator=g)
    time = torch.linspace(0, 1, FRAMES)
    rate = 1.0 + bird[:, None] + 0.2 * torch.randn(count, 1, generator=g)
    phase = torch.rand(count, 1, generator=g)
    band = 3.5 + 3 * torch.sin(2 * math.pi * (rate * time + phase))
    bands = torch.arange(8.0)[:, None]
    picture = torch.exp(-((bands - band[:, None]) ** 2))
    picture = picture + 0.35 * torch.randn(picture.shape, generator=g)
    return TensorDataset(picture, bird)


class SongBlock(nn.Module):
    def __init__(self, width, survival):
        super().__init__()
        self.survival = survival
        self.norm = nn.GroupNorm(4, width)
        self.depthwise = nn.Conv1d(width, width, 5, padding=2, groups=width)
        self.pointwise = nn.Conv1d(width, width, 1)
        self.dropout = nn.Dropout(0.0)

    def branch(self, x):
        return self.dropout(self.pointwise(F.silu(self.depthwise(self.norm(x)))))

    def forward(self, x):
        if not self.training:
            return x + self.survival * self.branch(x)
        if torch.rand(()) > self.survival:
            return x
        return x + self.branch(x)


class BirdNet(nn.Module):
    def __init__(self, width=24, depth=8, last_survival=0.6):
        super().__init__()
        self.stem = nn.Conv1d(8, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            SongBlock(width, 1 - (1 - last_survival) * i / (depth - 1))
            for i in range(depth)
        )
        self.norm = nn.GroupNorm(4, width)
        self.head = nn.Linear(2 * width, BIRDS)

    def set_dropout(self, p):
        for block in self.blocks:
            block.dropout.p = p

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(torch.cat([x.mean(2), x.amax(2)], dim=1))


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--dropout", type=float, default=0.3, help="at the beginning")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(71)
    loader = DataLoader(songs(640, 1), batch_size=32, shuffle=True)
    test_loader = DataLoader(songs(200, 2), batch_size=100)
    model = BirdNet()
    optimizer = torch.optim.RAdam(
        model.parameters(), lr=1e-2, weight_decay=1e-2, decoupled_weight_decay=True
    )

    step = 0
    while step < args.steps:
        for x, y in loader:
            model.set_dropout(args.dropout * max(0.0, 1 - 1.25 * step / args.steps))
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0 or step == 1:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
            if step == args.steps:
                break
        print(f"accuracy {evaluate(model, test_loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
