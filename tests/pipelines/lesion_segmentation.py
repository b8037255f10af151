"""Lesion segmentation on made-up MR-like slices: U-Net, Dice + BCE, bfloat16 autocast.

The split is by patient. The best checkpoint on the validation patients goes to disk
and is what gets reported on the test patients.
"""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

SIZE, SLICES = 32, 12


def make_patient(rng):
    """A stack of slices with one ellipsoidal lesion covering some of them, plus harmless blobs."""
    zz, yy, xx = np.mgrid[0:SLICES, 0:SIZE, 0:SIZE].astype(np.float32)
    volume = rng.normal(0, 0.25, zz.shape).astype(np.float32) + rng.uniform(-0.3, 0.3)
    volume += 1.0 * (((yy - 16) / 14) ** 2 + ((xx - 16) / 12) ** 2 < 1)
    for _ in range(3):  # vessels: bright but thin
        cy, cx = rng.uniform(8, 24, 2)
        volume += 1.2 * (((yy - cy) ** 2 + (xx - cx) ** 2) < 1.5)
    cz, cy, cx = rng.uniform(3, 9), rng.uniform(9, 23), rng.uniform(10, 22)
    rz, ry, rx = rng.uniform(1.5, 3.5), rng.uniform(2.5, 5), rng.uniform(2.5, 5)
    mask = ((zz - cz) / rz) ** 2 + ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1
    volume += rng.uniform(0.7, 1.2) * mask
    volume = (volume - volume.mean()) / volume.std()
    return volume.astype(np.float32), mask.astype(np.float32)


class SliceDataset(Dataset):
    def __init__(self, patients, augment=False):
        self.augment = augment
        self.items = [
            (torch.from_numpy(v[z])[None], torch.from_numpy(m[z])[None], pid)
            for pid, (v, m) in enumerate(patients)
            for z in range(SLICES)
        ]

    def has_lesion(self):
        return torch.tensor([bool(m.any()) for _, m, _ in self.items])

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        image, mask, pid = self.items[i]
        if self.augment:
            if torch.rand(()) < 0.5:
                image, mask = image.flip(-1), mask.flip(-1)
            if torch.rand(()) < 0.5:
                image, mask = image.flip(-2), mask.flip(-2)
            image = image * (0.9 + 0.2 * torch.rand(())) + 0.1 * torch.randn(())
        return image, mask, pid


class ConvBlock(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1, self.down2 = ConvBlock(1, width), ConvBlock(width, 2 * width)
        self.bottom = ConvBlock(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.dec2 = ConvBlock(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.dec1 = ConvBlock(2 * width, width)
        self.final = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        s1 = self.down1(x)
        s2 = self.down2(F.max_pool2d(s1, 2))
        b = self.bottom(F.max_pool2d(s2, 2))
        d = self.dec2(torch.cat([self.up2(b), s2], dim=1))
        d = self.dec1(torch.cat([self.up1(d), s1], dim=1))
        return self.final(d)


def dice_bce(logits, mask, eps=1.0):
    bce = F.binary_cross_entropy_with_logits(logits, mask)
    prob = logits.sigmoid()
    inter = (prob * mask).sum(dim=(1, 2, 3))
    dice = (2 * inter + eps) / (prob.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3)) + eps)
    return bce + (1 - dice).mean()


@torch.no_grad()
def patient_dice(model, loader, n_patients):
    """Dice over the whole volume of each patient, then the mean over patients."""
    model.eval()
    inter, size = torch.zeros(n_patients), torch.zeros(n_patients)
    for image, mask, pid in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(image)
        pred = (logits.float() > 0).float()
        inter.index_add_(0, pid, (pred * mask).sum(dim=(1, 2, 3)))
        size.index_add_(0, pid, (pred + mask).sum(dim=(1, 2, 3)))
    return (2 * inter / size.clamp_min(1)).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    patients = [make_patient(rng) for _ in range(30)]
    parts = {"train": patients[:20], "valid": patients[20:25], "test": patients[25:]}
    train_set = SliceDataset(parts["train"], augment=True)
    lesion = train_set.has_lesion()
    weights = torch.where(lesion, 1.0 / lesion.sum(), 1.0 / (~lesion).sum())
    train_loader = DataLoader(
        train_set, args.batch, sampler=WeightedRandomSampler(weights, len(train_set))
    )
    valid_loader = DataLoader(SliceDataset(parts["valid"]), 30)
    test_loader = DataLoader(SliceDataset(parts["test"]), 30)

    model = UNet()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    scheduler = torch.optim.lr_scheduler.PolynomialLR(
        optimizer, total_iters=args.epochs * len(train_loader), power=0.9
    )

    best = -1.0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "best.pt")
        for epoch in range(args.epochs):
            model.train()
            running = 0.0
            for image, mask, _ in train_loader:
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    logits = model(image)
                loss = dice_bce(logits.float(), mask)
                loss.backward()
                optimizer.step()
                scheduler.step()
                running += loss.item() * len(image)
            dice = patient_dice(model, valid_loader, len(parts["valid"]))
            print(
                f"epoch {epoch:2d} loss {running / len(train_set):.3f} valid dice {dice:.3f}"
            )
            if dice > best:
                best = dice
                torch.save(
                    {"model": model.state_dict(), "epoch": epoch, "dice": dice}, path
                )
        checkpoint = torch.load(path, weights_only=True)
        model.load_state_dict(checkpoint["model"])
        test = patient_dice(model, test_loader, len(parts["test"]))
        print(
            f"best epoch {checkpoint['epoch']}: valid dice {checkpoint['dice']:.3f}, test dice {test:.3f}"
        )


if __name__ == "__main__":
    main()
