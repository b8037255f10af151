import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

SIZE = 32


def synth_slice(rng):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    # head outline
    img = 0.4 * (((xx - 16) / 14.0) ** 2 + ((yy - 16) / 15.0) ** 2 < 1)
    mask = np.zeros((SIZE, SIZE), dtype=np.int64)
    cx, cy = rng.uniform(7, 25, size=2)
    a, b = rng.uniform(2.5, 5.5, size=2)
    lesion = ((xx - cx) / a) ** 2 + ((yy - cy) / b) ** 2 < 1
    img = img + 0.5 * lesion
    mask[lesion] = 1
    # bright vessels, which are not lesions
    for _ in range(2):
        vx = rng.integers(4, 28)
        img[:, vx] += 0.35
    img = img + rng.normal(0, 0.15, size=img.shape)
    return img.astype(np.float32), mask


class RandomFlip:
    """Flips the last two axes, each with probability p."""

    def __init__(self, p=0.5, seed=0):
        self.p = p
        self.rng = random.Random(seed)

    def __call__(self, *arrays):
        lr = self.rng.random() < self.p
        ud = self.rng.random() < self.p
        out = []
        for a in arrays:
            if lr:
                a = a[:, ::-1]
            if ud:
                a = a[::-1]
            out.append(np.ascontiguousarray(a))
        return out[0] if len(out) == 1 else tuple(out)


class SliceDataset(Dataset):
    def __init__(self, images, masks, augment=None, fixed=False):
        self.images, self.masks = images, masks
        self.augment = augment
        self.fixed = fixed

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.augment is not None:
            if self.fixed:
                image, mask = self.augment(image, mask)
            else:
                image = self.augment(image)
                mask = self.augment(mask)
        return torch.from_numpy(image)[None], torch.from_numpy(mask)


class MiniUNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
            )

        self.e1 = block(1, c)
        self.e2 = block(c, 2 * c)
        self.mid = block(2 * c, 2 * c)
        self.d2 = block(4 * c, c)
        self.d1 = block(2 * c, c)
        self.out = nn.Conv2d(c, 2, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.d2(torch.cat([F.interpolate(m, scale_factor=2.0), b], 1))
        y = self.d1(torch.cat([F.interpolate(y, scale_factor=2.0), a], 1))
        return self.out(y)


def dice_score(pred, target):
    inter = (pred & target).sum().item()
    return 2 * inter / max(pred.sum().item() + target.sum().item(), 1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    preds, targets = [], []
    for x, y in loader:
        preds.append(model(x).argmax(1) == 1)
        targets.append(y == 1)
    return dice_score(torch.cat(preds), torch.cat(targets))


parser = argparse.ArgumentParser(description="lesion segmentation on single slices")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")


def main():
    args = parser.parse_args()
    torch.manual_seed(21)
    rng = np.random.default_rng(21)
    pairs = [synth_slice(rng) for _ in range(288)]
    images, masks = [p[0] for p in pairs], [p[1] for p in pairs]
    train_set = SliceDataset(
        images[:208], masks[:208], RandomFlip(0.5, seed=3), args.fixed
    )
    val_set = SliceDataset(images[208:], masks[208:])
    train_loader = DataLoader(
        train_set,
        args.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(1),
    )
    val_loader = DataLoader(val_set, 40)

    model = MiniUNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    weight = torch.tensor([1.0, 3.0])
    it = 0
    for epoch in range(args.epochs):
        model.train()
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y, weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if it % 13 == 0:
                print(f"[{epoch}:{it}] ce {loss.item():.4f}")
            it += 1
        print(f"[{epoch}] val dice {validate(model, val_loader):.3f}")

    if args.prove:
        probe = SliceDataset(
            [m.astype(np.float32) for m in masks[:200]],
            masks[:200],
            RandomFlip(0.5, seed=9),
            args.fixed,
        )
        agree = [
            dice_score(a[0] > 0.5, b == 1) for a, b in (probe[i] for i in range(200))
        ]
        print(f"overlap of a mask used as its own image: {np.mean(agree):.3f}")
        print("fault shows:", "no" if np.mean(agree) > 0.999 else "yes")


if __name__ == "__main__":
    main()
