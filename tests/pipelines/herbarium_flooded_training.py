"""Leaf outline classifier for a digitised herbarium.

Residual network without normalisation layers, repeated augmentation, a floor under the
training loss, and dropout that is only used in the first part of the run.
"""
import argparse
import math
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

FAMILIES = ["acer", "betula", "fagus", "quercus", "salix", "tilia"]
SIZE = 24


def draw_leaf(family, rng):
    """A filled polar curve, with its own lobes, elongation and tip."""
    lobes, depth, stretch, tip = [
        (5, 0.42, 1.0, 0.0),
        (0, 0.00, 1.2, 0.45),
        (0, 0.00, 1.7, 0.0),
        (7, 0.24, 1.5, 0.0),
        (0, 0.00, 3.4, 0.1),
        (2, 0.30, 0.8, 0.0),
    ][family]
    axis = np.linspace(-1.3, 1.3, SIZE)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    angle, scale = rng.uniform(-0.35, 0.35), rng.uniform(0.85, 1.1)
    dx, dy = rng.uniform(-0.12, 0.12, 2)
    x, y = x - dx, y - dy
    u = (np.cos(angle) * x + np.sin(angle) * y) * math.sqrt(stretch) / scale
    v = (-np.sin(angle) * x + np.cos(angle) * y) / math.sqrt(stretch) / scale
    theta = np.arctan2(u, v)
    depth = depth * rng.uniform(0.8, 1.2)
    edge = 0.85 * (
        1 + depth * np.cos(lobes * theta) + tip * np.maximum(np.cos(theta), 0) ** 6
    )
    leaf = 1 / (1 + np.exp(-14 * (edge - np.hypot(u, v))))
    return (leaf * rng.uniform(0.6, 1.0)).astype(np.float32)


class Sheets(Dataset):
    def __init__(self, per_family, seed, augment):
        rng = np.random.default_rng(seed)
        self.labels = np.repeat(np.arange(len(FAMILIES)), per_family)
        sheets = [draw_leaf(k, rng) for k in self.labels]
        self.images = np.stack(sheets) + rng.normal(0, 0.08, (len(sheets), SIZE, SIZE))
        self.augment, self.rng = augment, np.random.default_rng(seed + 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i]
        if self.augment:
            image = np.roll(image, self.rng.integers(-2, 3, 2), axis=(0, 1))
            image = image[:, ::-1] if self.rng.random() < 0.5 else image
            image = image * self.rng.uniform(0.8, 1.2)
            r, c = self.rng.integers(0, SIZE - 4, 2)
            image = image.copy()
            image[r : r + 4, c : c + 4] = 0.0
        image = torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32))
        return (image[None] - 0.3) / 0.35, int(self.labels[i])


class RepeatedSampler(Sampler):
    """Every drawn sheet appears `repeats` times in a row; an epoch keeps its usual length."""

    def __init__(self, size, repeats, seed):
        self.size, self.repeats = size, repeats
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self):
        order = torch.randperm(self.size, generator=self.generator)
        repeated = order.repeat_interleave(self.repeats)[: self.size]
        return iter(repeated.tolist())

    def __len__(self):
        return self.size


class Branch(nn.Module):
    """x + gain * f(x), with the gain at zero to begin with."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.gain = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.gain * self.conv2(torch.relu(self.conv1(torch.relu(x))))


def make_net():
    net = nn.Sequential()
    net.add_module("stem", nn.Conv2d(1, 12, 5, padding=2))
    net.add_module("act0", nn.ReLU())
    net.add_module("block1", Branch(12))
    net.add_module("down1", nn.Conv2d(12, 24, 3, stride=2, padding=1))
    net.add_module("act1", nn.ReLU())
    net.add_module("block2", Branch(24))
    net.add_module("down2", nn.Conv2d(24, 32, 3, stride=2, padding=1))
    net.add_module("act2", nn.ReLU())
    net.add_module("block3", Branch(32))
    net.add_module("act3", nn.ReLU())
    net.add_module("pool", nn.AdaptiveAvgPool2d(3))
    net.add_module("flat", nn.Flatten())
    net.add_module("drop", nn.Dropout(0.2))
    net.add_module("head", nn.Linear(288, len(FAMILIES)))
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return net


def param_groups(net, decay):
    plain = [p for n, p in net.named_parameters() if p.ndim > 1]
    small = [p for n, p in net.named_parameters() if p.ndim <= 1]
    return [
        {"params": plain, "weight_decay": decay},
        {"params": small, "weight_decay": 0.0},
    ]


def train_one_epoch(net, loader, criterion, optimizer, schedule, floor):
    net.train()
    total = seen = 0
    for images, labels in loader:
        loss = criterion(net(images), labels)
        flooded = (loss - floor).abs() + floor
        optimizer.zero_grad()
        flooded.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        optimizer.step()
        schedule.step()
        total += loss.item() * len(labels)
        seen += len(labels)
    return total / seen


@torch.no_grad()
def validate(net, loader, criterion):
    net.eval()
    total = hits = seen = 0
    for images, labels in loader:
        logits = net(images)
        total += criterion(logits, labels).item() * len(labels)
        hits += (logits.argmax(1) == labels).sum().item()
        seen += len(labels)
    return total / seen, hits / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--floor", type=float, default=0.12)
    parser.add_argument(
        "--early-dropout", type=float, default=0.3, help="share of the run"
    )
    parser.add_argument("--seed", type=int, default=1753)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train = Sheets(120, args.seed, augment=True)
    valid, test = Sheets(25, args.seed + 10, False), Sheets(50, args.seed + 20, False)
    sampler = RepeatedSampler(len(train), args.repeats, args.seed)
    loader = DataLoader(train, batch_size=36, sampler=sampler, drop_last=True)
    valid_loader, test_loader = DataLoader(valid, 150), DataLoader(test, 150)

    net, criterion = make_net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(param_groups(net, 2e-2), lr=5e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 5e-3, total_steps=args.epochs * len(loader), pct_start=0.2
    )
    best, folder = 0.0, tempfile.mkdtemp(prefix="herbarium_")
    for epoch in range(args.epochs):
        net.drop.p = 0.2 if epoch < args.early_dropout * args.epochs else 0.0
        began = time.perf_counter()
        fit = train_one_epoch(net, loader, criterion, optimizer, schedule, args.floor)
        loss, acc = validate(net, valid_loader, criterion)
        print(
            f"{epoch + 1:2d}/{args.epochs} train {fit:.3f} valid {loss:.3f} acc {acc:.3f} "
            f"dropout {net.drop.p} gains {[round(net.get_submodule(b).gain.item(), 2) for b in ('block1', 'block2', 'block3')]} "
            f"{time.perf_counter() - began:.1f}s",
            flush=True,
        )
        if acc >= best:
            best = acc
            torch.save(net.state_dict(), os.path.join(folder, "best.pt"))
    net.load_state_dict(torch.load(os.path.join(folder, "best.pt"), weights_only=True))
    print("test loss %.3f acc %.3f" % validate(net, test_loader, criterion))


if __name__ == "__main__":
    main()
