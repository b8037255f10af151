#!/usr/bin/env python
# Segmentation of blobs with a two-level U-Net, mixed precision.
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

SIZE = 24


class Blobs(Dataset):
    """Noisy grey pictures with one to three ellipses; the mask is what they cover."""

    def __init__(self, n, seed):
        rng = np.random.RandomState(seed)
        yy, xx = np.mgrid[:SIZE, :SIZE]
        self.images, self.masks = [], []
        for _ in range(n):
            mask = np.zeros((SIZE, SIZE), bool)
            for _ in range(rng.randint(1, 4)):
                cy, cx = rng.uniform(4, SIZE - 4, 2)
                ry, rx = rng.uniform(2, 6, 2)
                mask |= ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1
            img = (
                0.8 * mask
                + rng.uniform(-0.5, 0.5) * yy / SIZE
                + 0.5 * rng.randn(SIZE, SIZE)
            )
            self.images.append(img.astype(np.float32)[None])
            self.masks.append(mask.astype(np.float32)[None])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), torch.from_numpy(self.masks[i])


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(inplace=True),
    )


class TinyUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.enc1 = double_conv(1, c)
        self.enc2 = double_conv(c, 2 * c)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.dec = double_conv(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        return self.out(self.dec(torch.cat([a, self.up(b)], 1)))


def dice_bce(logits, target):
    logits = logits.float()
    bce = F.binary_cross_entropy_with_logits(logits, target)
    p = logits.sigmoid()
    dice = 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)
    return bce + dice


def grad_norm(model):
    return (
        torch.stack([p.grad.float().norm() for p in model.parameters()]).norm().item()
    )


@torch.no_grad()
def iou(model, loader):
    model.eval()
    inter = union = 0
    for x, m in loader:
        pred = model(x) > 0
        m = m > 0.5
        inter += (pred & m).sum().item()
        union += (pred | m).sum().item()
    model.train()
    return inter / max(union, 1)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

random.seed(11)
np.random.seed(11)
torch.manual_seed(11)

train_loader = DataLoader(Blobs(160, 3), batch_size=8, shuffle=True)
val_loader = DataLoader(Blobs(40, 4), batch_size=20)

model = TinyUNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
scaler = torch.amp.GradScaler("cpu")
MAX_NORM = 1.0

step, epoch = 0, 0
norms = []
while step < args.steps:
    total = 0.0
    count = 0
    for x, mask in train_loader:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        loss = dice_bce(logits, mask)
        scaler.scale(loss).backward()
        if args.prove:
            real = grad_norm(model) / scaler.get_scale()
        if args.fixed:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        scaler.step(optimizer)
        if args.prove:
            norms.append((real, grad_norm(model)))
        scaler.update()
        total += loss.item()
        count += 1
        step += 1
        if step >= args.steps:
            break
    epoch += 1
    print(
        "epoch %d step %d loss %.4f val IoU %.3f"
        % (epoch, step, total / count, iou(model, val_loader))
    )

if args.prove:
    wrong = sum(used < 0.5 * min(real, MAX_NORM) for real, used in norms)
    print("# first step: norm before clipping %.3g, norm in the update %.3g" % norms[0])
    print("# steps with a smaller gradient than the limit asks for:", wrong)
    print("fault shows:", "yes" if wrong else "no")
