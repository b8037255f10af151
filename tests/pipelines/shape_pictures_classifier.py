"""
Small convnet on synthetic pictures of shapes (disc / square / cross / stripes).

Usage:
    python shape_pictures_classifier.py --steps 240
"""
import argparse
import copy
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = ["disc", "square", "cross", "stripes"]


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def draw(label, rng, size=24):
    img = np.zeros((size, size), dtype=np.float32)
    yy, xx = np.mgrid[:size, :size]
    cy, cx = rng.integers(8, size - 8, size=2)
    r = rng.integers(4, 8)
    if label == 0:
        img[(yy - cy) ** 2 + (xx - cx) ** 2 <= r * r] = 1
    elif label == 1:
        img[(abs(yy - cy) <= r) & (abs(xx - cx) <= r)] = 1
    elif label == 2:
        img[(abs(yy - cy) <= 1) & (abs(xx - cx) <= r)] = 1
        img[(abs(xx - cx) <= 1) & (abs(yy - cy) <= r)] = 1
    else:
        box = (abs(yy - cy) <= r) & (abs(xx - cx) <= r) & ((yy - cy) % 3 == 0)
        img[box] = 1
    color = rng.uniform(0.4, 1.0, size=(3, 1, 1)).astype(np.float32)
    img = img[None] * color
    img = img + rng.normal(0, 0.25, size=img.shape).astype(np.float32)
    return img.astype(np.float32)


class ShapeDataset(Dataset):
    def __init__(self, n, seed, mean=None, std=None, train=False):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(CLASSES), size=n)
        self.images = np.stack([draw(l, rng) for l in self.labels])
        self.train = train
        # statistics come from the training set and are handed to the others
        self.mean = (
            self.images.mean(axis=(0, 2, 3), keepdims=True)[0] if mean is None else mean
        )
        self.std = (
            self.images.std(axis=(0, 2, 3), keepdims=True)[0] if std is None else std
        )

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = torch.from_numpy((self.images[i] - self.mean) / self.std)
        if self.train:
            if torch.rand(()) < 0.5:
                x = torch.flip(x, dims=(2,))
            # random shift by padding and cropping
            x = F.pad(x, (2, 2, 2, 2))
            dy, dx = torch.randint(0, 5, (2,)).tolist()
            x = x[:, dy : dy + 24, dx : dx + 24]
        return x, int(self.labels[i])


class ConvNet(nn.Module):
    def __init__(self, width=16, num_classes=4):
        super().__init__()

        def block(cin, cout):
            return nn.Sequential(
                nn.Conv2d(cin, cout, 3, padding=1, bias=False),
                nn.BatchNorm2d(cout),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            )

        self.features = nn.Sequential(
            block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        )
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(4 * width, num_classes)

    def forward(self, x):
        x = self.features(x).mean(dim=(2, 3))
        return self.head(self.drop(x))


def param_groups(model, weight_decay):
    decay, no_decay = [], []
    for p in model.parameters():
        (no_decay if p.ndim <= 1 else decay).append(p)
    return [
        {"params": decay, "weight_decay": weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]


class Trainer:
    def __init__(self, model, train_loader, val_loader, args):
        self.model = model
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.args = args
        self.optimizer = torch.optim.SGD(
            param_groups(model, 5e-4), lr=args.lr, momentum=0.9, nesterov=True
        )
        warm = max(1, args.steps // 20)

        def schedule(step):
            if step < warm:
                return (step + 1) / warm
            t = (step - warm) / max(1, args.steps - warm)
            return 0.5 * (1 + math.cos(math.pi * t))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, schedule)
        self.step = 0
        self.best = 0.0

    def sanity_overfit(self, iters=15):
        """One batch on a throw-away copy: the loss has to come down."""
        model = copy.deepcopy(self.model).train()
        opt = torch.optim.Adam(model.parameters(), lr=3e-3)
        x, y = next(iter(self.train_loader))
        first = last = None
        for _ in range(iters):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            last = loss.item()
            first = last if first is None else first
        print(f"sanity check: {first:.3f} -> {last:.3f}")
        assert last < first

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        total = correct = loss_sum = 0
        for x, y in self.val_loader:
            logits = self.model(x)
            loss_sum += F.cross_entropy(logits, y, reduction="sum").item()
            correct += (logits.argmax(1) == y).sum().item()
            total += y.numel()
        self.model.train()
        return loss_sum / total, correct / total

    def fit(self):
        self.model.train()
        start = time.time()
        while self.step < self.args.steps:
            for x, y in self.train_loader:
                logits = self.model(x)
                loss = F.cross_entropy(logits, y, label_smoothing=0.05)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.step += 1
                if self.step % 40 == 0 or self.step == self.args.steps:
                    vl, va = self.evaluate()
                    self.best = max(self.best, va)
                    lr = self.scheduler.get_last_lr()[0]
                    print(
                        f"step {self.step:4d} loss {loss.item():.3f} val {vl:.3f} acc {va:.3f} "
                        f"lr {lr:.4f} {time.time() - start:.1f}s"
                    )
                if self.step >= self.args.steps:
                    break
        print(f"best accuracy {self.best:.3f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--lr", type=float, default=0.1)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    set_seed(args.seed)

    train = ShapeDataset(2048, seed=1, train=True)
    val = ShapeDataset(500, seed=2, mean=train.mean, std=train.std)
    train_loader = DataLoader(
        train, batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    val_loader = DataLoader(val, batch_size=128)

    trainer = Trainer(ConvNet(), train_loader, val_loader, args)
    trainer.sanity_overfit()
    trainer.fit()


if __name__ == "__main__":
    main()
