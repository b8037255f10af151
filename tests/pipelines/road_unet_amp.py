"""Road segmentation with a little U-Net, bfloat16 autocast and an EMA of the weights."""
import argparse
from copy import deepcopy

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader


class RoadTiles(Dataset):
    """Aerial tiles 32x32 with one or two roads; tile i is always the same picture."""

    def __init__(self, first, count, train):
        self.first, self.count, self.train = first, count, train

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(self.first + i)
        yy, xx = np.mgrid[0:32, 0:32].astype(np.float32)
        mask = np.zeros((32, 32), dtype=bool)
        for _ in range(rng.integers(1, 3)):
            a, off = rng.uniform(0, np.pi), rng.uniform(-8, 8)
            d = (xx - 16) * np.sin(a) - (yy - 16) * np.cos(a) + off
            mask |= np.abs(d) < rng.uniform(1.0, 2.5)
        ground = np.array([0.3, 0.45, 0.25])[:, None, None] + rng.normal(
            0, 0.1, (3, 32, 32)
        )
        road = np.array([0.5, 0.5, 0.5])[:, None, None] + rng.normal(
            0, 0.05, (3, 32, 32)
        )
        img = torch.from_numpy(np.where(mask, road, ground)).float()
        msk = torch.from_numpy(mask).float().unsqueeze(0)
        if self.train:
            # picture and mask get the same geometry
            if torch.rand(()) < 0.5:
                img, msk = img.flip(-1), msk.flip(-1)
            k = int(torch.randint(0, 4, ()))
            img, msk = torch.rot90(img, k, (1, 2)), torch.rot90(msk, k, (1, 2))
        return (img - 0.4) / 0.15, msk


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.SiLU(),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.d1, self.d2, self.mid = (
            double_conv(3, c),
            double_conv(c, 2 * c),
            double_conv(2 * c, 4 * c),
        )
        self.up2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, stride=2)
        self.u2 = double_conv(4 * c, 2 * c)
        self.up1 = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.u1 = double_conv(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        x = self.u2(torch.cat([self.up2(m), b], 1))
        x = self.u1(torch.cat([self.up1(x), a], 1))
        return self.out(x)


class BCEDice(nn.Module):
    def __init__(self, dice_weight=0.5, smooth=1.0):
        super().__init__()
        self.w, self.smooth = dice_weight, smooth

    def forward(self, logits, target):
        bce = F.binary_cross_entropy_with_logits(logits, target)
        p = logits.sigmoid().flatten(1)
        t = target.flatten(1)
        dice = (2 * (p * t).sum(1) + self.smooth) / (p.sum(1) + t.sum(1) + self.smooth)
        return (1 - self.w) * bce + self.w * (1 - dice).mean()


class ModelEMA:
    def __init__(self, model, decay):
        self.module = deepcopy(model).eval()
        self.module.requires_grad_(False)
        self.decay, self.updates = decay, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for e, p in zip(self.module.state_dict().values(), model.state_dict().values()):
            if e.dtype.is_floating_point:
                e.mul_(d).add_(p, alpha=1 - d)
            else:
                e.copy_(p)


@torch.inference_mode()
def iou(net, loader):
    net.eval()
    inter = union = 0
    for img, msk in loader:
        pred, true = net(img) > 0, msk > 0.5  # float32 here
        inter += (pred & true).sum().item()
        union += (pred | true).sum().item()
    return inter / max(union, 1)


def train(args):
    torch.manual_seed(args.seed)
    train_ds, val_ds = RoadTiles(0, 512, True), RoadTiles(1_000_000, 96, False)
    gen = torch.Generator().manual_seed(args.seed)
    train_dl = DataLoader(
        train_ds, args.batch_size, shuffle=True, generator=gen, drop_last=True
    )
    val_dl = DataLoader(val_ds, 32)

    net = UNet()
    ema = ModelEMA(net, 0.98)
    criterion = BCEDice()
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=1e-4)
    steps_per_epoch = len(train_dl)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=args.lr,
        epochs=args.epochs,
        steps_per_epoch=steps_per_epoch,
        pct_start=0.2,
    )

    for epoch in range(1, args.epochs + 1):
        net.train()
        losses = []
        for img, msk in train_dl:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not args.no_amp):
                logits = net(img)
            loss = criterion(logits.float(), msk)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            ema.update(net)
            losses.append(loss.detach())
        print(
            f"[{epoch}/{args.epochs}] loss {torch.stack(losses).mean():.4f} | "
            f"IoU {iou(net, val_dl):.4f} | EMA IoU {iou(ema.module, val_dl):.4f}"
        )
    return ema.module


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--seed", type=int, default=2023)
    p.add_argument("--no-amp", action="store_true")
    train(p.parse_args())
