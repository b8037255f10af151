"""Trains a small attentive tabular classifier with ghost batch normalisation.

The table is made up: sixteen columns of very different ranges, four classes. After
every fifteen steps the accuracy on held-out rows is printed.
"""

import argparse
import copy
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class TabNetConfig:
    size: int = 32
    steps: int = 2
    bn_virtual_bs: int = 16
    bn_momentum: float = 0.95  # Momentum of the batch norm.


class GhostBatchNorm(nn.Module):
    """Normalises parts of a batch, each by itself."""

    def __init__(self, features, momentum, virtual_batch_size):
        super().__init__()
        self.virtual_batch_size = virtual_batch_size
        self.bn = nn.BatchNorm1d(features, momentum=momentum)

    def forward(self, x):
        if self.training:
            return torch.cat(
                [self.bn(part) for part in x.split(self.virtual_batch_size)]
            )
        return self.bn(x)


class FeatureBlock(nn.Module):
    def __init__(self, inputs, size, config):
        super().__init__()
        self.fc = nn.Linear(inputs, 2 * size, bias=False)
        self.norm = GhostBatchNorm(2 * size, config.bn_momentum, config.bn_virtual_bs)

    def forward(self, x):
        return nn.functional.glu(self.norm(self.fc(x)))


class TabNet(nn.Module):
    def __init__(self, columns, classes, config):
        super().__init__()
        self.entry = nn.BatchNorm1d(columns, momentum=config.bn_momentum)
        self.shared = FeatureBlock(columns, config.size, config)
        self.blocks = nn.ModuleList(
            FeatureBlock(config.size, config.size, config) for _ in range(config.steps)
        )
        self.masks = nn.ModuleList(
            nn.Linear(config.size, columns) for _ in range(config.steps)
        )
        self.head = nn.Linear(config.size, classes)

    def forward(self, x):
        x = self.entry(x)
        hidden = self.shared(x)
        total = 0
        for block, mask in zip(self.blocks, self.masks):
            chosen = x * mask(hidden).softmax(1) * x.shape[1]
            hidden = block(self.shared(chosen))
            total = total + hidden.relu()
        return self.head(total)


def table(rows, generator):
    z = torch.randn(rows, 16, generator=generator)
    score = torch.stack(
        [z[:, 0] + z[:, 1], z[:, 2] * 1.5, z[:, 3] - z[:, 4], z[:, 5] * z[:, 6]], 1
    )
    ranges = torch.logspace(-1, 2, 16)
    return z * ranges + 3 * ranges, score.argmax(1)


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


@torch.no_grad()
def forgets(model, x):
    """Whether one forward replaces the running statistics by those of its batch."""
    probe = copy.deepcopy(model).train()
    before = probe.entry.running_mean.clone()
    probe(x)
    batch = x.mean(0)
    left = (probe.entry.running_mean - batch).norm() / (before - batch).norm()
    return left.item() < 0.5


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=60)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = TabNetConfig(bn_momentum=0.05) if options.fixed else TabNetConfig()
    generator = torch.Generator().manual_seed(7)
    x, y = table(4096, generator)
    held_x, held_y = table(512, generator)
    model = TabNet(16, 4, config)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for step in range(options.steps):
        rows = torch.randint(len(x), (128,), generator=generator)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 15 == 14:
            print(
                f"held out accuracy {accuracy(model, held_x, held_y):.3f}", flush=True
            )
    if options.prove:
        print("fault shows:", "yes" if forgets(model, x[:64]) else "no")


if __name__ == "__main__":
    main()
