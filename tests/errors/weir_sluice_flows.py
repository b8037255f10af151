"""Discharge over a weir from gate position, water levels and debris camera readings."""

import argparse
import os
import shutil
import tempfile
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

config = SimpleNamespace(
    epochs=12,
    batch_size=48,
    max_lr=0.15,
    momentum=0.9,
    weight_decay=1e-4,
    hidden=64,
    blocks=3,
    warmup=0.3,
)


def simulate(n, rng):
    gate = rng.uniform(0.05, 1.5, n)
    upstream = rng.uniform(1.0, 4.0, n)
    downstream = upstream * rng.uniform(0.2, 0.95, n)
    debris = rng.beta(1.5, 6, n)
    width = rng.choice([2.0, 3.5, 5.0], n)
    skew = rng.normal(0, 1, n)
    head = np.sqrt(2 * 9.81 * np.clip(upstream - downstream, 0, None))
    submerged = downstream > 0.7 * upstream
    coefficient = np.where(submerged, 0.42, 0.61) * (1 - 0.8 * debris)
    flow = coefficient * np.minimum(gate, upstream) * width * head
    flow = flow * (1 + 0.03 * rng.normal(size=n))
    columns = np.stack([gate, upstream, downstream, debris, width, skew], 1)
    return columns.astype("float32"), flow.astype("float32")


class Block(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 2 * hidden)
        self.down = nn.Linear(2 * hidden, hidden)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


class WeirNet(nn.Module):
    def __init__(self, inputs, cfg):
        super().__init__()
        self.stem = nn.Linear(inputs, cfg.hidden)
        self.blocks = nn.Sequential(*[Block(cfg.hidden) for _ in range(cfg.blocks)])
        self.norm = nn.LayerNorm(cfg.hidden)
        self.head = nn.Linear(cfg.hidden, 1)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x)))).squeeze(-1)


class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def add(self, value, n):
        self.sum += value * n
        self.count += n

    @property
    def mean(self):
        return self.sum / max(self.count, 1)


class Trainer:
    def __init__(self, cfg, train_loader, valid_loader, scale, workdir):
        self.cfg = cfg
        self.train_loader = train_loader
        self.valid_loader = valid_loader
        self.scale = scale
        self.workdir = workdir
        self.model = WeirNet(6, cfg)
        self.loss_fn = nn.HuberLoss(delta=0.5)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=cfg.max_lr,
            momentum=cfg.momentum,
            weight_decay=cfg.weight_decay,
            nesterov=True,
        )
        self.scheduler = OneCycleLR(
            self.optimizer,
            max_lr=cfg.max_lr,
            total_steps=cfg.epochs * len(train_loader),
            pct_start=cfg.warmup,
            cycle_momentum=False,
        )
        self.best = float("inf")

    def train_epoch(self):
        self.model.train()
        meter = Meter()
        for x, y in self.train_loader:
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss_fn(self.model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            if self.cfg.fixed:
                self.scheduler.step()
            meter.add(loss.item(), len(x))
        return meter.mean

    @torch.no_grad()
    def valid_epoch(self):
        self.model.eval()
        loss, gap = Meter(), Meter()
        for x, y in self.valid_loader:
            guess = self.model(x)
            loss.add(self.loss_fn(guess, y).item(), len(x))
            gap.add((guess - y).abs().mean().item() * self.scale, len(x))
        return loss.mean, gap.mean

    def run(self):
        for epoch in range(self.cfg.epochs):
            train_loss = self.train_epoch()
            valid_loss, gap = self.valid_epoch()
            if not self.cfg.fixed:
                self.scheduler.step()
            if valid_loss < self.best:
                self.best = valid_loss
                path = os.path.join(self.workdir, "weir.pt")
                torch.save({"model": self.model.state_dict(), "epoch": epoch}, path)
            print(
                f"[{epoch + 1:02d}] train={train_loss:.5f} valid={valid_loss:.5f} "
                f"mae={gap:.3f} m3/s"
            )
        return self.best, gap


def loaders(cfg, seed):
    rng = np.random.default_rng(seed)
    x, y = simulate(2400, rng)
    cut = 1920
    mean, std = x[:cut].mean(0), x[:cut].std(0)
    centre, scale = y[:cut].mean(), y[:cut].std()
    x = torch.from_numpy((x - mean) / std)
    y = torch.from_numpy((y - centre) / scale)
    train = DataLoader(
        TensorDataset(x[:cut], y[:cut]),
        batch_size=cfg.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(seed),
    )
    valid = DataLoader(TensorDataset(x[cut:], y[cut:]), batch_size=160)
    return train, valid, float(scale)


def cli():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    for name in ("epochs", "batch_size"):
        parser.add_argument(f"--{name}", type=int, default=getattr(config, name))
    parser.add_argument("--max_lr", type=float, default=config.max_lr)
    return parser.parse_args()


def main():
    args = cli()
    config.__dict__.update(vars(args))
    torch.manual_seed(args.seed)
    workdir = tempfile.mkdtemp(prefix="weir_")
    try:
        train, valid, scale = loaders(config, args.seed)
        trainer = Trainer(config, train, valid, scale, workdir)
        best, gap = trainer.run()
        print(f"best valid {best:.5f}, last mean error {gap:.3f} m3/s")
    finally:
        shutil.rmtree(workdir)


if __name__ == "__main__":
    main()
