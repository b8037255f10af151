"""Cell segmentation with a small U-Net on synthetic microscope pictures."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image, mask):
        for t in self.transforms:
            image, mask = t(image, mask)
        return image, mask


class Brightness:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, image, mask):
        return image + random.uniform(-self.amount, self.amount), mask


class HorizontalFlip:
    def __init__(self, p, args):
        self.p, self.args = p, args

    def __call__(self, image, mask):
        if random.random() < self.p:
            image = image.flip(-1)
            if self.args.fixed:
                mask = mask.flip(-1)
        return image, mask


class CellDataset(Dataset):
    def __init__(self, n, seed, transform=None, size=48):
        rng = np.random.default_rng(seed)
        self.images = np.zeros((n, 1, size, size), np.float32)
        self.masks = np.zeros((n, 1, size, size), np.float32)
        yy, xx = np.mgrid[:size, :size]
        for i in range(n):
            for _ in range(rng.integers(3, 7)):
                cy, cx = rng.uniform(4, size - 4, 2)
                a, b = rng.uniform(3, 7, 2)
                cell = ((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2 < 1
                self.images[i, 0][cell] = rng.uniform(0.8, 1.2)
                self.masks[i, 0][cell] = 1
            self.images[i] += 0.25 * yy / size + rng.normal(0, 0.2, (size, size))
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = torch.from_numpy(self.images[i]), torch.from_numpy(self.masks[i])
        if self.transform:
            image, mask = self.transform(image, mask)
        return image, mask


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down1, self.down2 = double_conv(1, c), double_conv(c, 2 * c)
        self.bottom = double_conv(2 * c, 4 * c)
        self.up2, self.up1 = double_conv(6 * c, 2 * c), double_conv(3 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        d1 = self.down1(x)
        d2 = self.down2(F.max_pool2d(d1, 2))
        b = self.bottom(F.max_pool2d(d2, 2))
        u2 = self.up2(torch.cat([F.interpolate(b, scale_factor=2.0), d2], 1))
        u1 = self.up1(torch.cat([F.interpolate(u2, scale_factor=2.0), d1], 1))
        return self.out(u1)


def dice(logits, mask, eps=1.0):
    p = torch.sigmoid(logits)
    inter = (p * mask).sum((1, 2, 3))
    return (2 * inter + eps) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + eps)


def criterion(logits, mask):
    return (
        F.binary_cross_entropy_with_logits(logits, mask)
        + (1 - dice(logits, mask)).mean()
    )


@torch.no_grad()
def validate(model, loader):
    model.eval()
    scores = torch.cat([dice((model(x) > 0).float() * 40 - 20, m) for x, m in loader])
    model.train()
    return scores.mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    random.seed(4)
    np.random.seed(4)
    torch.manual_seed(4)

    augment = Compose([HorizontalFlip(0.5, args), Brightness(0.1)])
    train_set = CellDataset(320, seed=0, transform=augment)
    val_loader = DataLoader(CellDataset(64, seed=1), batch_size=32)
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
    model = UNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)

    step = 0
    while step < args.steps:
        for image, mask in train_loader:
            loss = criterion(model(image), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0:
                print(
                    f"step {step} loss {loss.item():.4f} val dice {validate(model, val_loader):.4f}"
                )
            if step >= args.steps:
                break

    if args.prove:
        pairs = [train_set[i] for i in range(100)]
        agree = [((img > 0.62) == (m > 0.5)).float().mean().item() for img, m in pairs]
        print("fault shows:", "yes" if sum(a < 0.85 for a in agree) > 10 else "no")


if __name__ == "__main__":
    main()
