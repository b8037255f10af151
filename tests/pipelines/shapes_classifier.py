"""Classify drawn shapes (circle / square / triangle / cross) with a small ResNet.

usage: python shapes_classifier.py --epochs 8
"""
import argparse
import copy
import math
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = ["circle", "square", "triangle", "cross"]


def draw(rng, label, size=24):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    cx, cy = rng.uniform(8, size - 8, 2)
    r = rng.uniform(4, 7)
    dx, dy = xx - cx, yy - cy
    if label == 0:
        mask = dx**2 + dy**2 < r**2
    elif label == 1:
        mask = (abs(dx) < r * 0.85) & (abs(dy) < r * 0.85)
    elif label == 2:
        mask = (dy > -r) & (dy < r) & (abs(dx) < (dy + r) / 2)
    else:
        mask = ((abs(dx) < r / 3) & (abs(dy) < r)) | ((abs(dy) < r / 3) & (abs(dx) < r))
    color = rng.uniform(0.4, 1.0, (3, 1, 1)).astype(np.float32)
    img = rng.normal(0.2, 0.15, (3, size, size)).astype(np.float32)
    return np.where(mask[None], color + 0.1 * img, img).astype(np.float32)


class ShapesDataset(Dataset):
    def __init__(self, n, seed, augment=False):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(CLASSES), n)
        self.images = np.stack([draw(rng, l) for l in self.labels])
        self.augment = augment
        self.mean, self.std = 0.0, 1.0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = (self.images[i] - self.mean) / self.std
        if self.augment:
            if random.random() < 0.5:
                img = img[:, :, ::-1]
            sy, sx = np.random.randint(-2, 3, 2)
            img = np.roll(img, (sy, sx), axis=(1, 2))
        return torch.from_numpy(np.ascontiguousarray(img)), int(self.labels[i])


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = nn.Sequential()
        if stride != 1 or cin != cout:
            self.short = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.short(x))


def tiny_resnet():
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, 1, 1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        Block(12, 12, 1),
        Block(12, 24, 2),
        Block(24, 48, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(48, len(CLASSES)),
    )


class Trainer:
    def __init__(self, model, train_loader, val_loader, epochs, lr=0.1, warmup=20):
        self.model, self.train_loader, self.val_loader = model, train_loader, val_loader
        self.epochs = epochs
        total = epochs * len(train_loader)
        warmup = min(warmup, max(1, total // 4))
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.optimizer = torch.optim.SGD(
            model.parameters(), lr=lr, momentum=0.9, nesterov=True, weight_decay=5e-4
        )

        def factor(step):
            if step < warmup:
                return (step + 1) / warmup
            return 0.5 * (
                1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup))
            )

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        self.best_acc = -1.0
        self.ckpt = os.path.join(tempfile.mkdtemp(prefix="shapes_"), "best.pt")

    def sanity_check(self):
        """Initial loss should be close to log(num_classes), and one batch must be learnable."""
        probe = copy.deepcopy(self.model)
        x, y = next(iter(self.train_loader))
        first = F.cross_entropy(probe(x), y).item()
        print(f"initial loss {first:.3f} (log C = {math.log(len(CLASSES)):.3f})")
        opt = torch.optim.Adam(probe.parameters(), lr=3e-3)
        for _ in range(5):
            opt.zero_grad()
            loss = F.cross_entropy(probe(x), y)
            loss.backward()
            opt.step()
        print(f"one batch after 5 updates {loss.item():.3f}")

    def train_epoch(self):
        self.model.train()
        total, seen = 0.0, 0
        for x, y in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item() * len(y)
            seen += len(y)
        return total / seen

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        correct = total = 0
        for x, y in loader:
            correct += (self.model(x).argmax(1) == y).sum().item()
            total += len(y)
        return correct / total

    def fit(self):
        for epoch in range(self.epochs):
            loss = self.train_epoch()
            acc = self.evaluate(self.val_loader)
            print(
                f"epoch {epoch + 1}/{self.epochs} loss {loss:.4f} val acc {acc:.3f} "
                f"lr {self.scheduler.get_last_lr()[0]:.4f}"
            )
            if acc > self.best_acc:
                self.best_acc = acc
                torch.save(self.model.state_dict(), self.ckpt)
        self.model.load_state_dict(torch.load(self.ckpt))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    train_set = ShapesDataset(640, seed=1, augment=True)
    val_set = ShapesDataset(200, seed=2)
    test_set = ShapesDataset(200, seed=3)
    mean, std = train_set.images.mean(), train_set.images.std()
    for ds in (train_set, val_set, test_set):
        ds.mean, ds.std = mean, std

    gen = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(
        train_set,
        args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        worker_init_fn=seed_worker,
        generator=gen,
        drop_last=True,
    )
    val_loader = DataLoader(val_set, 100)
    test_loader = DataLoader(test_set, 100)

    trainer = Trainer(tiny_resnet(), train_loader, val_loader, args.epochs)
    trainer.sanity_check()
    trainer.fit()
    print(
        f"best val acc {trainer.best_acc:.3f}  test acc {trainer.evaluate(test_loader):.3f}"
    )


if __name__ == "__main__":
    main()
