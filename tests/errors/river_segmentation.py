"""Segment water in small aerial pictures with a tiny U-Net (course project)."""
import argparse
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150, help="optimizer steps")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


class RandomFlipCrop:
    """random horizontal/vertical flip and a random crop"""

    def __init__(self, size):
        self.size = size

    def __call__(self, t):
        if random.random() < 0.5:
            t = t.flip(-1)
        if random.random() < 0.5:
            t = t.flip(-2)
        top = random.randint(0, t.shape[-2] - self.size)
        left = random.randint(0, t.shape[-1] - self.size)
        return t[..., top : top + self.size, left : left + self.size]


def paint_river(rng):
    """one 40x40 scene: green land, a winding river, some dark roofs"""
    h = w = 40
    yy, xx = torch.meshgrid(
        torch.arange(float(h)), torch.arange(float(w)), indexing="ij"
    )
    a, b, c = rng.uniform(5, 35), rng.uniform(-0.5, 0.5), rng.uniform(2, 5)
    phase, width = rng.uniform(0, 6.3), rng.uniform(2.5, 5.5)
    centre = a + b * yy + c * torch.sin(yy / 6 + phase)
    mask = ((xx - centre).abs() < width).float()
    img = torch.stack([0.30 + 0 * xx, 0.50 + 0 * xx, 0.25 + 0 * xx])
    water = torch.tensor([0.20, 0.35, 0.55])[:, None, None]
    img = img * (1 - mask) + water * mask
    for _ in range(4):
        y, x = rng.randrange(36), rng.randrange(36)
        if mask[y : y + 4, x : x + 4].sum() == 0:
            img[:, y : y + 4, x : x + 4] = torch.tensor([0.35, 0.25, 0.25])[
                :, None, None
            ]
    return img, mask[None]


class Scenes(Dataset):
    def __init__(self, n, seed, transform=None):
        rng = random.Random(seed)
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            img, mask = paint_river(rng)
            self.items.append((img + 0.05 * torch.randn(img.shape, generator=g), mask))
        self.transform = transform
        self.same_draw = False

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, mask = self.items[i]
        if self.transform:
            state = random.getstate()
            img = self.transform(img)
            if self.same_draw:
                random.setstate(state)
            mask = self.transform(mask)
        return img, mask


class UNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.enc1 = self.conv(3, c)
        self.enc2 = self.conv(c, 2 * c)
        self.mid = self.conv(2 * c, 2 * c)
        self.up1 = nn.ConvTranspose2d(2 * c, 2 * c, 2, stride=2)
        self.dec1 = self.conv(4 * c, c)
        self.up2 = nn.ConvTranspose2d(c, c, 2, stride=2)
        self.dec2 = self.conv(2 * c, c)
        self.head = nn.Conv2d(c, 1, 1)
        self.pool = nn.MaxPool2d(2)

    @staticmethod
    def conv(i, o):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU()
        )

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(self.pool(e1))
        m = self.mid(self.pool(e2))
        d = self.dec1(torch.cat([self.up1(m), e2], 1))
        d = self.dec2(torch.cat([self.up2(d), e1], 1))
        return self.head(d)


def dice_loss(logit, target, eps=1.0):
    p = torch.sigmoid(logit)
    inter = (p * target).sum((1, 2, 3))
    total = p.sum((1, 2, 3)) + target.sum((1, 2, 3))
    return (1 - (2 * inter + eps) / (total + eps)).mean()


def iou(model, loader):
    model.eval()
    inter = union = 0
    with torch.no_grad():
        for x, m in loader:
            p = model(x) > 0
            inter += (p & (m > 0.5)).sum().item()
            union += (p | (m > 0.5)).sum().item()
    model.train()
    return inter / max(union, 1)


def main():
    args = parse()
    random.seed(0)
    torch.manual_seed(0)
    train = Scenes(320, 1, RandomFlipCrop(32))
    if args.fixed:
        train.same_draw = True
    test = Scenes(80, 2)
    train_loader = DataLoader(train, args.batch, shuffle=True)
    test_loader = DataLoader(test, 40)

    net = UNet()
    bce = nn.BCEWithLogitsLoss()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    done, epoch = 0, 0
    while done < args.steps:
        for x, m in train_loader:
            out = net(x)
            loss = bce(out, m) + dice_loss(out, m)
            opt.zero_grad()
            loss.backward()
            opt.step()
            done += 1
            if done == args.steps:
                break
        print(
            f"epoch {epoch} loss {loss.item():.4f} test IoU {iou(net, test_loader):.4f}"
        )
        epoch += 1

    if args.prove:
        # water is the only blue thing, so the picture itself tells the mask
        agree, n = 0.0, 0
        for i in range(100):
            x, m = train[i]
            blue = (x[2] - x[0] > 0.15).float()
            agree += (blue == m[0]).float().mean().item()
            n += 1
        print("fault shows:", "yes" if agree / n < 0.9 else "no")


if __name__ == "__main__":
    main()
