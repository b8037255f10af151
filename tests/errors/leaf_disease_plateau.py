"""Leaf disease classifier with early stopping and learning rate on plateau.

Company prototype: one folder-like dataset object, split into train and
validation, strong augmentation because there are only few pictures.
"""
from __future__ import annotations

import argparse
import random
from pathlib import Path
from tempfile import mkdtemp
from typing import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset, random_split

DISEASES = ("healthy", "rust", "mildew", "blight", "mosaic")


# ---------------------------------------------------------------- transforms
class Compose:
    def __init__(self, *parts: Callable):
        self.parts = parts

    def __call__(self, img):
        for part in self.parts:
            img = part(img)
        return img


class RandomFlip:
    def __call__(self, img):
        return img.flip(-1) if random.random() < 0.5 else img


class RandomErase:
    def __init__(self, size):
        self.size = size

    def __call__(self, img):
        h, w = img.shape[-2:]
        top, left = random.randrange(h - self.size), random.randrange(w - self.size)
        img = img.clone()
        img[:, top : top + self.size, left : left + self.size] = 0.5
        return img


class ColorJitter:
    def __init__(self, strength):
        self.strength = strength

    def __call__(self, img):
        gains = torch.tensor(
            [1 + random.uniform(-self.strength, self.strength) for _ in range(3)]
        )
        return img * gains.view(3, 1, 1)


class Normalize:
    def __call__(self, img):
        return (img - 0.4) / 0.25


# ---------------------------------------------------------------- data
class LeafPictures(Dataset):
    def __init__(
        self, n: int, side: int = 20, transform: Callable | None = None, seed: int = 0
    ):
        g = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(0, len(DISEASES), (n,), generator=g)
        self.pictures = torch.stack([self.paint(int(t), side, g) for t in self.targets])
        self.transform = transform

    @staticmethod
    def paint(kind: int, side: int, g: torch.Generator):
        img = torch.empty(3, side, side)
        img[0], img[1], img[2] = 0.2, 0.55, 0.2
        img += 0.08 * torch.randn(3, side, side, generator=g)
        if kind == 4:
            checker = (
                torch.arange(side)[:, None] // 3 + torch.arange(side)[None] // 3
            ) % 2
            img[1] += 0.14 * checker
        elif kind:
            colour = torch.tensor(
                [[0.65, 0.35, 0.1], [0.75, 0.75, 0.75], [0.25, 0.2, 0.15]]
            )[kind - 1]
            for _ in range(3):
                r = int(torch.randint(1, 4, (1,), generator=g))
                cy, cx = torch.randint(r, side - r, (2,), generator=g).tolist()
                img[:, cy - r : cy + r, cx - r : cx + r] = colour.view(3, 1, 1)
        return img.clamp(0, 1)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        img = self.pictures[i]
        if self.transform is not None:
            img = self.transform(img)
        return img, self.targets[i]


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 16, 3, padding=1)
        self.c2 = nn.Conv2d(16, 32, 3, padding=1)
        self.n1, self.n2 = nn.BatchNorm2d(16), nn.BatchNorm2d(32)
        self.out = nn.Linear(64, len(DISEASES))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.n1(self.c1(x))), 2)
        x = F.relu(self.n2(self.c2(x)))
        return self.out(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1))


@torch.no_grad()
def validate(net, loader):
    net.eval()
    loss = hits = n = 0
    for x, y in loader:
        logits = net(x)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        hits += (logits.argmax(1) == y).sum().item()
        n += len(y)
    return loss / n, hits / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--patience", type=int, default=6)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    random.seed(14)
    torch.manual_seed(14)

    train_tf = Compose(RandomFlip(), ColorJitter(0.5), RandomErase(10), Normalize())
    eval_tf = Normalize()
    everything = LeafPictures(800, transform=train_tf)
    train_set, val_set = random_split(
        everything, [640, 160], generator=torch.Generator().manual_seed(1)
    )
    if args.fixed:
        val_set = Subset(LeafPictures(800, transform=eval_tf), val_set.indices)
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=80)

    net = LeafNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=1)
    ckpt = Path(mkdtemp()) / "leaf_best.pt"
    best, stale, step = float("inf"), 0, 0

    while step < args.steps and stale < args.patience:
        net.train()
        for x, y in train_loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step >= args.steps:
                break
        val_loss, val_acc = validate(net, val_loader)
        plateau.step(val_loss)
        if val_loss < best:
            best, stale = val_loss, 0
            torch.save(net.state_dict(), ckpt)
        else:
            stale += 1
        print(
            f"step {step:4d} val loss {val_loss:.4f} acc {val_acc:.3f} lr {opt.param_groups[0]['lr']:.4f}"
        )

    net.load_state_dict(torch.load(ckpt))
    print("best model: loss %.4f acc %.3f" % validate(net, val_loader))

    if args.prove:
        once = torch.cat([x for x, _ in val_loader])
        again = torch.cat([x for x, _ in val_loader])
        print("fault shows:", "no" if torch.equal(once, again) else "yes")


if __name__ == "__main__":
    main()
