"""Binary segmentation of cells in made-up microscopy tiles with a two-level U-Net."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = 48


def draw_tile(rng):
    yy, xx = np.mgrid[:SIZE, :SIZE]
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    for _ in range(rng.integers(2, 6)):
        cy, cx = rng.uniform(4, SIZE - 4, 2)
        a, b = rng.uniform(3, 8, 2)
        t = rng.uniform(0, np.pi)
        u = (xx - cx) * np.cos(t) + (yy - cy) * np.sin(t)
        v = -(xx - cx) * np.sin(t) + (yy - cy) * np.cos(t)
        mask |= (u / a) ** 2 + (v / b) ** 2 < 1
    shade = rng.uniform(0, 0.4) * xx / SIZE
    image = 0.3 + shade + mask * rng.uniform(0.2, 0.5) + rng.normal(0, 0.15, mask.shape)
    return image.astype(np.float32), mask.astype(np.float32)


class Tiles(Dataset):
    def __init__(self, n, seed, augment):
        rng = np.random.default_rng(seed)
        pairs = [draw_tile(rng) for _ in range(n)]
        self.images = [p[0] for p in pairs]
        self.masks = [p[1] for p in pairs]
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.augment:
            k = np.random.randint(4)
            image, mask = np.rot90(image, k), np.rot90(mask, k)
            if np.random.rand() < 0.5:
                image, mask = image[:, ::-1], mask[:, ::-1]
        image = (image - image.mean()) / (image.std() + 1e-6)  # per tile
        if self.augment:
            image = image * np.random.uniform(0.9, 1.1) + np.random.uniform(-0.1, 0.1)
        image = torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32))[None]
        mask = torch.from_numpy(np.ascontiguousarray(mask))[None]
        return image, mask


def seed_worker(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.enc1 = double_conv(1, base)
        self.enc2 = double_conv(base, base * 2)
        self.mid = double_conv(base * 2, base * 4)
        self.up2 = nn.ConvTranspose2d(base * 4, base * 2, 2, stride=2)
        self.dec2 = double_conv(base * 4, base * 2)
        self.up1 = nn.ConvTranspose2d(base * 2, base, 2, stride=2)
        self.dec1 = double_conv(base * 2, base)
        self.out = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.mid(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([self.up2(m), e2], 1))
        d1 = self.dec1(torch.cat([self.up1(d2), e1], 1))
        return self.out(d1)


class BCEDice(nn.Module):
    def __init__(self, dice_weight=0.5, eps=1.0):
        super().__init__()
        self.dice_weight, self.eps = dice_weight, eps

    def forward(self, logits, target):
        bce = F.binary_cross_entropy_with_logits(logits, target)
        prob = logits.sigmoid()
        inter = (prob * target).sum(dim=(1, 2, 3))
        denom = prob.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
        dice = 1 - (2 * inter + self.eps) / (denom + self.eps)
        return (1 - self.dice_weight) * bce + self.dice_weight * dice.mean()


def train_one_epoch(model, loader, criterion, optimizer, scaler, max_norm=2.0):
    model.train()
    total, count = 0.0, 0
    for image, mask in loader:
        image, mask = image.to(DEVICE), mask.to(DEVICE)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.float16, enabled=scaler.is_enabled()):
            loss = criterion(model(image).float(), mask)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
        total += loss.item() * image.size(0)
        count += image.size(0)
    return total / count


@torch.inference_mode()
def validate(model, loader, criterion, threshold=0.5):
    model.eval()
    total, count, inter, union = 0.0, 0, 0.0, 0.0
    for image, mask in loader:
        image, mask = image.to(DEVICE), mask.to(DEVICE)
        logits = model(image)
        total += criterion(logits, mask).item() * image.size(0)
        count += image.size(0)
        pred = logits.sigmoid() > threshold
        truth = mask > 0.5
        inter += (pred & truth).sum().item()
        union += (pred | truth).sum().item()
    return total / count, inter / max(union, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=9)
    ap.add_argument("--workers", type=int, default=1)
    args = ap.parse_args()

    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    train_set = Tiles(200, seed=10, augment=True)
    val_set = Tiles(48, seed=11, augment=False)
    g = torch.Generator()
    g.manual_seed(7)
    train_loader = DataLoader(
        train_set,
        batch_size=16,
        shuffle=True,
        num_workers=args.workers,
        worker_init_fn=seed_worker,
        generator=g,
        persistent_workers=args.workers > 0,
    )
    val_loader = DataLoader(val_set, batch_size=16)

    model = UNet().to(DEVICE)
    criterion = BCEDice()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="min", factor=0.5, patience=1
    )
    scaler = torch.amp.GradScaler(DEVICE, enabled=DEVICE == "cuda")

    best = 0.0
    for epoch in range(1, args.epochs + 1):
        train_loss = train_one_epoch(model, train_loader, criterion, optimizer, scaler)
        val_loss, iou = validate(model, val_loader, criterion)
        scheduler.step(val_loss)
        best = max(best, iou)
        print(
            f"[{epoch:02d}] train {train_loss:.4f}  val {val_loss:.4f}  IoU {iou:.4f}  "
            f"lr {optimizer.param_groups[0]['lr']:.1e}"
        )
    print(f"best IoU {best:.4f}")


if __name__ == "__main__":
    main()
