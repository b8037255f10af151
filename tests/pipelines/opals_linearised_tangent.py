"""Opal grading in the tangent space of a pretrained network.

A small convolutional network learns the body tone of stones from a large archive.
For two customers with other gradings ("pattern" and "flaw") only a tangent vector per
customer is learned: the network is replaced with its first-order expansion around the
archive weights, f(x; w0) + J(x) v, which torch.func.jvp evaluates without forming J.
Since the expansion is linear in v, tangents of customers can be kept, scaled, or
added.
"""

import argparse
import math
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, jvp
from torch.utils.data import DataLoader, TensorDataset

SIDE = 14


def polish_stones(count, generator):
    """Three-channel patches with body tone, stripe direction and an optional crack."""
    axis = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    tone = torch.randint(0, 4, (count,), generator=generator)
    pattern = torch.randint(0, 3, (count,), generator=generator)
    flaw = torch.randint(0, 2, (count,), generator=generator)
    angle = pattern * math.pi / 3 + 0.2 * torch.randn(count, generator=generator)
    phase = 6.28 * torch.rand(count, generator=generator)
    wave = torch.sin(
        7 * (xx * angle.cos()[:, None, None] + yy * angle.sin()[:, None, None])
        + phase[:, None, None]
    )
    offset = torch.rand(count, generator=generator) - 0.5
    crack = torch.exp(-((xx + yy - offset[:, None, None]) ** 2) / 0.01)
    palette = torch.tensor(
        [[0.2, 0.1, 0.5], [0.5, 0.5, 0.1], [0.1, 0.5, 0.4], [0.6, 0.2, 0.2]]
    )
    stones = palette[tone][:, :, None, None] + 0.35 * wave[:, None]
    stones = stones - 0.9 * (flaw[:, None, None] * crack)[:, None]
    noise = 0.25 * torch.randn(stones.shape, generator=generator)
    return stones + noise, {"tone": tone, "pattern": pattern, "flaw": flaw}


class StoneNet(nn.Module):
    def __init__(self, classes, channels=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1),
            nn.GroupNorm(4, channels),
            nn.GELU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
            nn.GroupNorm(4, 2 * channels),
            nn.GELU(),
            nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1),
            nn.GELU(),
        )
        self.head = nn.Linear(2 * channels, classes)

    def forward(self, stones):
        return self.head(self.body(stones).mean(dim=(2, 3)))


class TangentNet(nn.Module):
    """The first-order expansion of a network; its only parameters are the direction."""

    def __init__(self, base):
        super().__init__()
        self.base = base.eval().requires_grad_(False)
        self.anchor = {k: v.detach() for k, v in base.named_parameters()}
        self.direction = nn.ParameterDict(
            {k.replace(".", "/"): torch.zeros_like(v) for k, v in self.anchor.items()}
        )

    def tangent(self):
        return {k: self.direction[k.replace(".", "/")] for k in self.anchor}

    def forward(self, stones):
        def at(weights):
            return functional_call(self.base, weights, (stones,))

        value, slope = jvp(at, (self.anchor,), (self.tangent(),))
        return value + slope

    def train(self, mode=True):
        super().train(mode)
        self.base.eval()
        return self


def run_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for stones, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(stones), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
    return total / len(loader.dataset)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = 0
    for stones, labels in loader:
        hits += (model(stones).argmax(dim=1) == labels).sum().item()
    return hits / len(loader.dataset)


def loaders(stones, labels, n_valid, batch, seed):
    fit = TensorDataset(stones[:-n_valid], labels[:-n_valid])
    held = TensorDataset(stones[-n_valid:], labels[-n_valid:])
    generator = torch.Generator().manual_seed(seed)
    return (
        DataLoader(fit, batch_size=batch, shuffle=True, generator=generator),
        DataLoader(held, batch_size=200),
    )


def pretrain(args, generator):
    stones, labels = polish_stones(args.archive, generator)
    grading = labels["tone"] * 3 + labels["pattern"]
    train, held = loaders(stones, grading, 300, 50, args.seed)
    model = StoneNet(classes=12)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        loss = run_epoch(model, train, optimizer)
        schedule.step()
        print(f"archive {epoch}: loss {loss:.4f} held {accuracy(model, held):.3f}")
    return model


def learn_tangent(name, classes, body, stones, labels, args):
    base = StoneNet(classes)
    base.body.load_state_dict(body.state_dict())
    train, held = loaders(stones, labels, 200, 40, args.seed + 1)
    model = TangentNet(base)
    optimizer = torch.optim.SGD(model.direction.parameters(), lr=args.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, args.tangent_epochs
    )
    for epoch in range(args.tangent_epochs):
        loss = run_epoch(model, train, optimizer)
        schedule.step()
        length = sum(v.detach().square().sum() for v in model.direction.values()).sqrt()
        print(
            f"{name} {epoch}: loss {loss:.4f} held {accuracy(model, held):.3f} "
            f"length of the tangent {length:.3f}"
        )
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--archive", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--customer", type=int, default=800)
    parser.add_argument("--tangent-epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed + 40)

    archive = pretrain(args, generator)
    kept = {k: v.clone() for k, v in archive.body.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        for name, classes in (("pattern", 3), ("flaw", 2)):
            stones, labels = polish_stones(args.customer, generator)
            model = learn_tangent(
                name, classes, archive.body, stones, labels[name], args
            )
            kept_tangent = {k: v.detach() for k, v in model.tangent().items()}
            torch.save(kept_tangent, os.path.join(folder, f"{name}.pt"))
            moved = any(
                not torch.equal(kept[k], v)
                for k, v in model.base.body.state_dict().items()
            )
            print(f"{name}: archive weights {'changed' if moved else 'as they were'}")


if __name__ == "__main__":
    main()
