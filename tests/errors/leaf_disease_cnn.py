"""Leaf disease classification (5 classes) with a small CNN.

Pictures are rendered on the fly: a green leaf on soil, with spots, rust, mildew, yellowing or nothing.
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ["healthy", "spots", "rust", "mildew", "yellow"]


def render_leaf(label, rng, size=32):
    yy, xx = np.mgrid[0:size, 0:size] / (size - 1) * 2 - 1
    img = np.zeros((3, size, size), dtype=np.float32)
    img[:] = np.array([0.35, 0.25, 0.18])[:, None, None]
    a, b = rng.uniform(0.6, 0.9), rng.uniform(0.35, 0.6)
    t = rng.uniform(0, np.pi)
    u, v = xx * np.cos(t) + yy * np.sin(t), -xx * np.sin(t) + yy * np.cos(t)
    leaf = (u / a) ** 2 + (v / b) ** 2 < 1
    color = np.array([0.15, 0.55, 0.15]) + rng.normal(0, 0.05, 3)
    if label == 4:
        color = color + np.array([0.25, 0.08, 0.0])
    for c in range(3):
        img[c][leaf] = color[c]
    n_marks = {1: 5, 2: 9, 3: 4}.get(label, 0)
    for _ in range(n_marks):
        cy, cx = rng.uniform(-0.5, 0.5, 2)
        r = {1: 0.13, 2: 0.07, 3: 0.2}[label]
        mark = ((xx - cx) ** 2 + (yy - cy) ** 2 < r**2) & leaf
        paint = {1: (0.25, 0.2, 0.1), 2: (0.7, 0.35, 0.1), 3: (0.75, 0.8, 0.75)}[label]
        for c in range(3):
            img[c][mark] = paint[c]
    img += rng.normal(0, 0.12, img.shape)
    return img.clip(0, 1)


def make_set(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(CLASSES), n)
    x = np.stack([render_leaf(int(k), rng) for k in y]).astype(np.float32)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class LeafNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1),
                nn.BatchNorm2d(o),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )

        self.features = nn.Sequential(block(3, 16), block(16, 32), block(32, 48))
        self.dropout = nn.Dropout(0.4)
        self.fc1 = nn.Linear(48 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, n_classes)

    def forward(self, x):
        x = self.features(x).flatten(1)
        x = F.relu(self.fc1(self.dropout(x)))
        return self.fc2(self.dropout(x))


class Trainer:
    def __init__(self, model, train_loader, val_loader, args):
        self.model = model
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.args = args
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=args.lr, weight_decay=1e-4
        )
        self.step = 0
        self.best_acc = 0.0

    def train_epoch(self):
        self.model.train()
        total, seen = 0.0, 0
        for x, y in self.train_loader:
            if self.step >= self.args.steps:
                break
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.step += 1
            total += loss.item() * len(y)
            seen += len(y)
        return total / max(seen, 1)

    @torch.no_grad()
    def validate(self):
        if self.args.fixed:
            self.model.eval()
        total, correct, seen = 0.0, 0, 0
        for x, y in self.val_loader:
            logits = self.model(x)
            total += self.criterion(logits, y).item() * len(y)
            correct += (logits.argmax(1) == y).sum().item()
            seen += len(y)
        return total / seen, correct / seen

    def fit(self):
        epoch = 0
        while self.step < self.args.steps:
            train_loss = self.train_epoch()
            val_loss, val_acc = self.validate()
            self.best_acc = max(self.best_acc, val_acc)
            epoch += 1
            print(
                f"epoch {epoch:2d} step {self.step:4d}  train {train_loss:.4f}  val {val_loss:.4f}  acc {val_acc:.3f}"
            )
        print(f"best val acc: {self.best_acc:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train_loader = DataLoader(
        make_set(768, 1), batch_size=args.batch_size, shuffle=True
    )
    val_loader = DataLoader(make_set(256, 2), batch_size=args.batch_size)
    trainer = Trainer(LeafNet(len(CLASSES)), train_loader, val_loader, args)
    trainer.fit()

    if args.prove:
        bn = trainer.model.features[0][1]
        before = bn.running_mean.clone()
        a, _ = trainer.validate()
        b, _ = trainer.validate()
        moved = (bn.running_mean - before).abs().max().item()
        print(f"validation twice: {a:.5f} {b:.5f}, running mean moved by {moved:.2e}")
        print("fault shows:", "yes" if moved > 0 and a != b else "no")


if __name__ == "__main__":
    main()
