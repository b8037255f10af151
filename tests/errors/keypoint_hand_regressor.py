"""Regress the tip of a pointing finger (x, y) in small grey pictures. Augmentation with shifts, noise and cut-out."""
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Subset

SIZE = 32


class Compose:
    def __init__(self, *fns):
        self.fns = fns

    def __call__(self, img, pt):
        for f in self.fns:
            img, pt = f(img, pt)
        return img, pt


class RandomShift:
    def __init__(self, pixels):
        self.pixels = pixels

    def __call__(self, img, pt):
        dy, dx = torch.randint(-self.pixels, self.pixels + 1, (2,)).tolist()
        img = torch.roll(img, (dy, dx), dims=(1, 2))
        return img, pt + torch.tensor([dx, dy], dtype=torch.float32) / SIZE


class RandomFlip:
    def __call__(self, img, pt):
        if torch.rand(()) < 0.5:
            img = img.flip(2)
            pt = torch.stack([(SIZE - 1) / SIZE - pt[0], pt[1]])
        return img, pt


class RandomCutout:
    def __init__(self, s):
        self.s = s

    def __call__(self, img, pt):
        y, x = torch.randint(0, SIZE - self.s, (2,)).tolist()
        img = img.clone()
        img[:, y : y + self.s, x : x + self.s] = 0.5
        return img, pt


class GaussianNoise:
    def __init__(self, std):
        self.std = std

    def __call__(self, img, pt):
        return img + self.std * torch.randn_like(img), pt


class FingerDataset(Dataset):
    def __init__(self, n, seed, transform=None):
        rng = np.random.default_rng(seed)
        self.imgs, self.pts = zip(*[self.paint(rng) for _ in range(n)])
        self.transform = transform

    @staticmethod
    def paint(rng):
        yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
        tip = rng.uniform(7, SIZE - 8, 2)
        ang = rng.uniform(0, 2 * np.pi)
        img = 0.25 + 0.1 * rng.random() + 0.05 * rng.normal(size=(SIZE, SIZE))
        for d in np.linspace(0, 11, 12):  # finger
            px, py = tip[0] + d * np.cos(ang), tip[1] + d * np.sin(ang)
            img = np.where((xx - px) ** 2 + (yy - py) ** 2 < 2.0**2, 0.8, img)
        px, py = tip[0] + 15 * np.cos(ang), tip[1] + 15 * np.sin(ang)  # fist
        img = np.where((xx - px) ** 2 + (yy - py) ** 2 < 5.5**2, 0.75, img)
        return torch.tensor(img, dtype=torch.float32)[None], torch.tensor(
            tip / SIZE, dtype=torch.float32
        )

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        img, pt = self.imgs[i], self.pts[i]
        if self.transform is not None:
            img, pt = self.transform(img, pt)
        return img, pt


class TipNet(nn.Module):
    def __init__(self):
        super().__init__()
        layers, c = [], 1
        for o in (16, 24, 32):
            layers += [
                nn.Conv2d(c, o, 3, padding=1),
                nn.BatchNorm2d(o),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
            c = o
        self.conv = nn.Sequential(*layers)
        self.fc = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 2)
        )

    def forward(self, x):
        return self.fc(self.conv(x))


def get_loaders(args):
    augment = Compose(
        RandomShift(3), RandomFlip(), RandomCutout(8), GaussianNoise(0.08)
    )
    n = 1000
    full = FingerDataset(n, seed=3, transform=augment)
    perm = torch.randperm(n, generator=torch.Generator().manual_seed(3)).tolist()
    train = Subset(full, perm[:800])
    val = Subset(full, perm[800:])
    if args.fixed:
        val = Subset(FingerDataset(n, seed=3), perm[800:])
    return DataLoader(train, 32, shuffle=True), DataLoader(val, 100)


def validate(model, loader):
    model.eval()
    d = []
    with torch.no_grad():
        for img, pt in loader:
            d.append((model(img) - pt).norm(dim=1) * SIZE)
    return torch.cat(d).mean().item()


def main(args):
    torch.manual_seed(3)
    train_loader, val_loader = get_loaders(args)
    model = TipNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
    step, best = 0, float("inf")
    while step < args.steps:
        model.train()
        for img, pt in train_loader:
            loss = nn.functional.smooth_l1_loss(model(img), pt, beta=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step >= args.steps:
                break
        err = validate(model, val_loader)
        sched.step(err)
        best = min(best, err)
        print(
            f"step {step:4d}  loss {loss.item():.5f}  val error {err:.3f} px  lr {opt.param_groups[0]['lr']:.1e}"
        )
    print(f"best val error {best:.3f} px")

    if args.prove:
        a, b = next(iter(val_loader))[0], next(iter(val_loader))[0]
        print(
            f"two passes over the validation pictures differ by {(a - b).abs().max().item():.4f}"
        )
        print("fault shows:", "no" if torch.equal(a, b) else "yes")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=175)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    main(p.parse_args())
