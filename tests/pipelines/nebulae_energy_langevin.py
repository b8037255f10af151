"""Density of stars around a planetary nebula as an energy-based model.

Contrastive divergence with a persistent buffer (Du & Mordatch, 2019): Langevin walks
on the inputs produce negatives, the energy of stars goes down, the energy of negatives
goes up. The difference of the two energies hovers around zero and its sign carries no
message, so progress is judged by comparing walked samples with unseen stars.
"""

import argparse
import logging
import math
import os
import tempfile
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LOG = logging.getLogger("nebula")


def stars(count, generator):
    """A shell with a bright arc, and a compact core."""
    angle = 2 * math.pi * torch.rand(count, generator=generator)
    bright = torch.rand(count, generator=generator) < 0.3
    angle = torch.where(bright, 0.6 + 0.15 * angle, angle)
    radius = 1.5 + 0.18 * torch.randn(count, generator=generator)
    shell = torch.stack([radius * angle.cos(), 0.8 * radius * angle.sin()], dim=1)
    core = 0.28 * torch.randn(count, 2, generator=generator)
    in_core = torch.rand(count, generator=generator) < 0.25
    return torch.where(in_core[:, None], core, shell)


class Energy(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        confinement = 0.2 * x.square().sum(dim=1)
        return self.net(x).squeeze(1) + confinement


def langevin(energy, x, steps, size, generator):
    """Unadjusted Langevin walk; the weights of the energy are left alone."""
    was_training = energy.training
    energy.eval().requires_grad_(False)
    x = x.detach().clone()
    for _ in range(steps):
        x.requires_grad_(True)
        (slope,) = torch.autograd.grad(energy(x).sum(), x)
        noise = torch.randn(x.shape, generator=generator)
        x = x.detach() - 0.5 * size * slope.clamp(-20, 20) + math.sqrt(size) * noise
    energy.train(was_training).requires_grad_(True)
    return x


class Buffer:
    """End points of earlier walks; a few of them restart from plain noise."""

    def __init__(self, size, restart, generator):
        self.generator, self.restart = generator, restart
        self.points = 3 * torch.rand(size, 2, generator=generator) - 1.5

    def draw(self, count):
        self.rows = torch.randperm(len(self.points), generator=self.generator)[:count]
        x = self.points[self.rows].clone()
        fresh = torch.rand(count, generator=self.generator) < self.restart
        noise = 4 * torch.rand(count, 2, generator=self.generator) - 2
        return torch.where(fresh[:, None], noise, x)

    def put_back(self, x):
        self.points[self.rows] = x


def kernel_distance(a, b, widths=(0.1, 0.3, 1.0)):
    """Unbiased squared maximum mean discrepancy, averaged over widths."""

    def kernel(x, y):
        square = torch.cdist(x, y).square()
        return sum(torch.exp(-square / (2 * w * w)) for w in widths) / len(widths)

    def inner(x):
        k = kernel(x, x)
        return (k.sum() - k.diagonal().sum()) / (len(x) * (len(x) - 1))

    return (inner(a) + inner(b) - 2 * kernel(a, b).mean()).item()


def run(cfg):
    torch.manual_seed(cfg.seed)
    generator = torch.Generator().manual_seed(cfg.seed + 8)
    catalogue, unseen = stars(3000, generator), stars(500, generator)
    loader = DataLoader(
        TensorDataset(catalogue),
        batch_size=cfg.batch,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(cfg.seed + 9),
    )
    energy = Energy()
    optimizer = torch.optim.Adam(energy.parameters(), lr=cfg.lr, betas=(0.5, 0.99))
    schedule = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.1, total_iters=cfg.epochs
    )
    buffer = Buffer(cfg.buffer, cfg.restart, generator)
    for epoch in range(1, cfg.epochs + 1):
        energy.train()
        gap_sum, up = 0.0, 0
        for (real,) in loader:
            walked = langevin(
                energy, buffer.draw(len(real)), cfg.walk, cfg.size, generator
            )
            buffer.put_back(walked)
            optimizer.zero_grad()
            both = energy(torch.cat([real, walked]))
            real_energy, walked_energy = both.chunk(2)
            gap = real_energy.mean() - walked_energy.mean()
            loss = gap + cfg.tame * both.square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(energy.parameters(), 5.0)
            optimizer.step()
            gap_sum += gap.item()
            up += int(gap.item() > 0)
        schedule.step()
        if epoch % 3 == 0 or epoch == 1:
            start = 4 * torch.rand(500, 2, generator=generator) - 2
            sample = langevin(energy, start, cfg.long_walk, cfg.size, generator)
            LOG.info(
                "epoch %2d  energy gap %+.4f (above 0 in %2d%%)  mmd^2 to unseen %.4f",
                epoch,
                gap_sum / len(loader),
                100 * up // len(loader),
                kernel_distance(sample, unseen),
            )
    return energy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    cfg = SimpleNamespace(
        seed=args.seed,
        epochs=args.epochs,
        batch=100,
        lr=2e-3,
        walk=20,
        long_walk=120,
        size=0.01,
        buffer=1000,
        restart=0.05,
        tame=0.001,
    )
    energy = run(cfg)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(energy.state_dict(), os.path.join(folder, "energy.pt"))


if __name__ == "__main__":
    main()
