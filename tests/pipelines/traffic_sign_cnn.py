# Small CNN on synthetic "traffic signs" (shape x colour -> 8 classes).
# usage: python traffic_sign_cnn.py [--epochs 6]
import argparse
import copy
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--bs", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.08)
parser.add_argument("--wd", type=float, default=5e-4)
parser.add_argument("--warmup", type=int, default=20)
parser.add_argument("--seed", type=int, default=3)
args = parser.parse_args()

random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)

CLASSES = [
    (s, c) for s in ("square", "disc", "cross", "frame") for c in ("red", "blue")
]


def draw(shape, colour, rng):
    yy, xx = np.mgrid[0:24, 0:24]
    cy, cx = rng.integers(9, 15, size=2)
    r = rng.integers(5, 9)
    dy, dx = np.abs(yy - cy), np.abs(xx - cx)
    if shape == "square":
        m = (dy < r) & (dx < r)
    elif shape == "disc":
        m = dy**2 + dx**2 < r**2
    elif shape == "cross":
        m = ((dy < 2) & (dx < r)) | ((dx < 2) & (dy < r))
    else:
        m = (dy < r) & (dx < r) & ~((dy < r - 2) & (dx < r - 2))
    img = rng.uniform(0.2, 0.5, size=(3, 1, 1)) * np.ones((3, 24, 24))
    img[0 if colour == "red" else 2][m] = rng.uniform(0.7, 1.0)
    img += rng.normal(0, 0.15, size=img.shape)
    return img.clip(0, 1).astype(np.float32)


def make_split(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(CLASSES), size=n)
    x = np.stack([draw(*CLASSES[k], rng) for k in y])
    return x, y.astype(np.int64)


class Signs(Dataset):
    def __init__(self, x, y, mean, std, augment):
        self.x, self.y = x, y
        self.mean, self.std = mean, std
        self.augment = augment

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        img = torch.from_numpy(self.x[i])
        if self.augment:
            if torch.rand(()) < 0.5:
                img = img.flip(-1)
            img = F.pad(img[None], (2, 2, 2, 2), mode="reflect")[0]
            top, left = torch.randint(0, 5, (2,)).tolist()
            img = img[:, top : top + 24, left : left + 24]
        return (img - self.mean) / self.std, int(self.y[i])


x_train, y_train = make_split(1800, seed=100)
x_val, y_val = make_split(500, seed=200)
# statistics of the training pictures only
mean = torch.tensor(x_train.mean(axis=(0, 2, 3)), dtype=torch.float32).view(3, 1, 1)
std = torch.tensor(x_train.std(axis=(0, 2, 3)), dtype=torch.float32).view(3, 1, 1)

train_loader = DataLoader(
    Signs(x_train, y_train, mean, std, True), batch_size=args.bs, shuffle=True
)
val_loader = DataLoader(Signs(x_val, y_val, mean, std, False), batch_size=200)


def conv_block(i, o, stride=1):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
    )


model = nn.Sequential(
    conv_block(3, 16),
    conv_block(16, 32, stride=2),
    conv_block(32, 48, stride=2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Dropout(0.1),
    nn.Linear(48, len(CLASSES)),
)


def param_groups(net):
    # no decay on biases and norm parameters
    decay = [p for p in net.parameters() if p.ndim > 1]
    no_decay = [p for p in net.parameters() if p.ndim <= 1]
    return [
        {"params": decay, "weight_decay": args.wd},
        {"params": no_decay, "weight_decay": 0.0},
    ]


# --- sanity checks before the real run -------------------------------------
with torch.no_grad():
    model.eval()
    xb, yb = next(iter(val_loader))
    first = F.cross_entropy(model(xb), yb).item()
print(f"loss at init {first:.3f} (log C = {math.log(len(CLASSES)):.3f})")

probe = copy.deepcopy(model).train()  # throwaway copy, must be able to learn one batch
probe_opt = torch.optim.SGD(param_groups(probe), lr=0.05, momentum=0.9)
xb, yb = next(iter(train_loader))
for _ in range(15):
    probe_opt.zero_grad()
    probe_loss = F.cross_entropy(probe(xb), yb)
    probe_loss.backward()
    probe_opt.step()
print(f"one-batch check: {probe_loss.item():.3f}")
del probe, probe_opt

# --- training ----------------------------------------------------------------
total_steps = args.epochs * len(train_loader)
optimizer = torch.optim.SGD(
    param_groups(model), lr=args.lr, momentum=0.9, nesterov=True
)


def lr_factor(step):
    if step < args.warmup:
        return (step + 1) / args.warmup
    t = (step - args.warmup) / max(1, total_steps - args.warmup)
    return 0.5 * (1 + math.cos(math.pi * t))


scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

best = 0.0
for epoch in range(args.epochs):
    model.train()
    running, seen = 0.0, 0
    for xb, yb in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        scheduler.step()
        running += loss.item() * len(yb)
        seen += len(yb)

    model.eval()
    correct, val_loss = 0, 0.0
    with torch.no_grad():
        for xb, yb in val_loader:
            logits = model(xb)
            val_loss += F.cross_entropy(logits, yb, reduction="sum").item()
            correct += (logits.argmax(1) == yb).sum().item()
    acc = correct / len(y_val)
    best = max(best, acc)
    print(
        f"epoch {epoch + 1}/{args.epochs}  train {running / seen:.4f}  "
        f"val {val_loss / len(y_val):.4f}  acc {acc:.3f}  next lr {scheduler.get_last_lr()[0]:.4f}"
    )
print(f"best val accuracy {best:.3f}")
