"""Leaf disease classifier, small CNN. Pictures are drawn here, so no download is needed."""
import argparse
import copy
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = ["healthy", "spots", "stripes", "blight"]


def draw_leaf(label, rng, size=24):
    img = np.zeros((3, size, size), dtype=np.float32)
    img[1] = 0.6 + 0.1 * rng.standard_normal((size, size))
    img[0] = 0.2 + 0.1 * rng.standard_normal((size, size))
    img[2] = 0.15 + 0.1 * rng.standard_normal((size, size))
    if label == 1:
        for _ in range(rng.integers(3, 7)):
            y, x = rng.integers(2, size - 4, size=2)
            img[0, y : y + 3, x : x + 3] += 0.5
    elif label == 2:
        step = rng.integers(4, 7)
        img[1, rng.integers(0, step) :: step] -= 0.35
    elif label == 3:
        y, x = rng.integers(0, size // 2, size=2)
        img[:, y : y + 10, x : x + 10] *= 0.4
    return img


class LeafDataset(Dataset):
    def __init__(self, n, seed, mean=None, std=None, augment=False):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(CLASSES), size=n)
        self.images = torch.from_numpy(
            np.stack([draw_leaf(int(l), rng) for l in self.labels])
        )
        # normalise with statistics of the training set only
        self.mean = self.images.mean((0, 2, 3)).view(3, 1, 1) if mean is None else mean
        self.std = self.images.std((0, 2, 3)).view(3, 1, 1) if std is None else std
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = (self.images[i] - self.mean) / self.std
        if self.augment:
            if random.random() < 0.5:
                x = x.flip(-1)
            if random.random() < 0.5:
                x = x.flip(-2)
        return x, int(self.labels[i])


class ConvBlock(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )


class LeafNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(
            ConvBlock(3, 16), ConvBlock(16, 32), ConvBlock(32, 64)
        )
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(64, n_classes)

    def forward(self, x):
        x = self.features(x).mean((2, 3))
        return self.fc(self.drop(x))


class ModelEMA:
    def __init__(self, model, decay=0.98):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay
        self.updates = 0
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for e, p in zip(self.module.parameters(), model.parameters()):
            e.lerp_(p, 1 - d)
        for e, b in zip(self.module.buffers(), model.buffers()):
            e.copy_(b)


def param_groups(model, wd):
    decay, no_decay = [], []
    for p in model.parameters():
        (no_decay if p.ndim <= 1 else decay).append(p)
    return [
        {"params": decay, "weight_decay": wd},
        {"params": no_decay, "weight_decay": 0.0},
    ]


class Trainer:
    def __init__(self, args):
        self.args = args
        train = LeafDataset(960, seed=1, augment=True)
        valid = LeafDataset(250, seed=2, mean=train.mean, std=train.std)
        self.train_loader = DataLoader(
            train, batch_size=48, shuffle=True, drop_last=False
        )
        self.valid_loader = DataLoader(valid, batch_size=100)
        self.model = LeafNet(len(CLASSES))
        self.ema = ModelEMA(self.model)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.opt = torch.optim.SGD(
            param_groups(self.model, 5e-4), lr=0.05, momentum=0.9, nesterov=True
        )
        warm, total = max(1, args.steps // 10), args.steps
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt,
            lambda s: (s + 1) / warm
            if s < warm
            else 0.5 * (1 + math.cos(math.pi * (s - warm) / max(1, total - warm))),
        )
        self.step = 0

    def sanity_check(self):
        self.model.eval()
        x, y = next(iter(self.valid_loader))
        with torch.no_grad():
            out = self.model(x)
        assert out.shape == (len(x), len(CLASSES))
        print(
            f"loss before training {F.cross_entropy(out, y):.3f} (ln C = {math.log(len(CLASSES)):.3f})"
        )

    @torch.no_grad()
    def evaluate(self, model):
        was_training = model.training
        model.eval()
        loss, right, seen = 0.0, 0, 0
        for x, y in self.valid_loader:
            out = model(x)
            loss += F.cross_entropy(out, y, reduction="sum").item()
            right += (out.argmax(1) == y).sum().item()
            seen += len(y)
        model.train(was_training)
        return loss / seen, right / seen

    def fit(self):
        self.sanity_check()
        epoch = 0
        while self.step < self.args.steps:
            self.model.train()
            total, seen = 0.0, 0
            for x, y in self.train_loader:
                loss = self.criterion(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.opt.step()
                self.sched.step()
                self.ema.update(self.model)
                total += loss.item() * len(y)
                seen += len(y)
                self.step += 1
                if self.step >= self.args.steps:
                    break
            raw, ema = self.evaluate(self.model), self.evaluate(self.ema.module)
            print(
                f"epoch {epoch} step {self.step} train {total / seen:.3f} "
                f"val {raw[0]:.3f}/{raw[1]:.3f} ema {ema[0]:.3f}/{ema[1]:.3f}"
            )
            epoch += 1


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    Trainer(args).fit()
