"""Road / lane segmentation on synthetic street pictures with a small U-Net."""
import random
from argparse import ArgumentParser
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

IGNORE = 255


@dataclass
class Config:
    steps: int = 90
    batch_size: int = 8
    lr: float = 6e-2
    momentum: float = 0.9
    weight_decay: float = 1e-4
    power: float = 0.9
    dice_weight: float = 0.5
    n_train: int = 160
    n_val: int = 42
    size: int = 32
    n_classes: int = 3  # background, road, lane mark
    workers: int = 2
    seed: int = 3
    eval_every: int = 30


class StreetDataset(Dataset):
    """Every picture depends on its index only; augmentation is random."""

    def __init__(self, n, size, offset, train):
        self.n, self.size, self.offset, self.train = n, size, offset, train

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        r = np.random.RandomState(self.offset + i)
        s = self.size
        yy, xx = np.mgrid[0:s, 0:s]
        centre = s * (0.3 + 0.4 * r.rand()) + (yy - s / 2) * r.uniform(-0.4, 0.4)
        half = 2 + yy * r.uniform(0.15, 0.3)
        road = (np.abs(xx - centre) < half) & (yy > s * 0.2)
        lane = road & (np.abs(xx - centre) < 1.2) & ((yy // 4) % 2 == 0)
        mask = np.zeros((s, s), dtype=np.int64)
        mask[road], mask[lane] = 1, 2
        img = np.stack([0.3 + 0.0 * yy, 0.5 + 0.0 * yy, 0.35 + 0.0 * yy])
        img[:, road] = 0.25 + 0.1 * r.rand()
        img[:, lane] = 0.85
        img = (img + 0.12 * r.randn(3, s, s) - 0.4) / 0.25
        mask[-2:] = IGNORE  # bonnet of the car, not labelled
        img, mask = torch.from_numpy(img).float(), torch.from_numpy(mask)
        if self.train:
            if random.random() < 0.5:
                img, mask = img.flip(-1), mask.flip(-1)
            img = img * (0.8 + 0.4 * np.random.rand())
        return img.float(), mask


def seed_worker(worker_id):
    s = torch.initial_seed() % 2**32
    np.random.seed(s)
    random.seed(s)


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False),
        nn.GroupNorm(4, o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1, bias=False),
        nn.GroupNorm(4, o),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, n_classes, c=8):
        super().__init__()
        self.d1, self.d2, self.mid = (
            double_conv(3, c),
            double_conv(c, 2 * c),
            double_conv(2 * c, 4 * c),
        )
        self.up2, self.u2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, stride=2), double_conv(
            4 * c, 2 * c
        )
        self.up1, self.u1 = nn.ConvTranspose2d(2 * c, c, 2, stride=2), double_conv(
            2 * c, c
        )
        self.head = nn.Conv2d(c, n_classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([self.up2(m), b], 1))
        a = self.u1(torch.cat([self.up1(b), a], 1))
        return self.head(a)


class CEDiceLoss(nn.Module):
    def __init__(self, n_classes, dice_weight):
        super().__init__()
        self.ce = nn.CrossEntropyLoss(
            weight=torch.tensor([1.0, 1.0, 2.0]), ignore_index=IGNORE
        )
        self.n_classes, self.w = n_classes, dice_weight

    def forward(self, logits, target):
        valid = target != IGNORE
        one_hot = (
            F.one_hot(target.masked_fill(~valid, 0), self.n_classes)
            .permute(0, 3, 1, 2)
            .float()
        )
        v = valid.unsqueeze(1).float()
        p = logits.softmax(1) * v
        one_hot = one_hot * v
        inter = (p * one_hot).sum((0, 2, 3))
        dice = (2 * inter + 1) / (p.sum((0, 2, 3)) + one_hot.sum((0, 2, 3)) + 1)
        return self.ce(logits, target) + self.w * (1 - dice.mean())


@torch.no_grad()
def validate(model, loader, n_classes):
    model.eval()
    cm = torch.zeros(n_classes, n_classes, dtype=torch.long)
    for img, mask in loader:
        pred = model(img).argmax(1)
        keep = mask != IGNORE
        cm += torch.bincount(
            mask[keep] * n_classes + pred[keep], minlength=n_classes**2
        ).view(n_classes, n_classes)
    model.train()
    inter = cm.diag().double()
    iou = inter / (cm.sum(0) + cm.sum(1) - cm.diag()).clamp(min=1)
    return iou, (inter.sum() / cm.sum()).item()


def main(cfg):
    random.seed(cfg.seed), np.random.seed(cfg.seed), torch.manual_seed(cfg.seed)
    train = StreetDataset(cfg.n_train, cfg.size, 0, True)
    val = StreetDataset(cfg.n_val, cfg.size, 100_000, False)
    g = torch.Generator().manual_seed(cfg.seed)
    train_loader = DataLoader(
        train,
        cfg.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=cfg.workers,
        worker_init_fn=seed_worker,
        generator=g,
    )
    val_loader = DataLoader(val, 16)

    model = UNet(cfg.n_classes)
    criterion = CEDiceLoss(cfg.n_classes, cfg.dice_weight)
    opt = torch.optim.SGD(
        model.parameters(),
        lr=cfg.lr,
        momentum=cfg.momentum,
        weight_decay=cfg.weight_decay,
    )
    poly = torch.optim.lr_scheduler.PolynomialLR(
        opt, total_iters=cfg.steps, power=cfg.power
    )

    step, best, running = 0, 0.0, []
    model.train()
    while step < cfg.steps:
        for img, mask in train_loader:
            loss = criterion(model(img), mask)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            poly.step()
            step += 1
            running.append(loss.item())
            if step % cfg.eval_every == 0 or step == cfg.steps:
                iou, acc = validate(model, val_loader, cfg.n_classes)
                best = max(best, iou.mean().item())
                print(
                    f"step {step:4d} loss {np.mean(running):.3f} lr {poly.get_last_lr()[0]:.4f} "
                    f"IoU {[round(v, 3) for v in iou.tolist()]} acc {acc:.3f}"
                )
                running.clear()
            if step == cfg.steps:
                break
    print(f"best mIoU {best:.3f}")


if __name__ == "__main__":
    ap = ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    ap.add_argument("--workers", type=int, default=Config.workers)
    a = ap.parse_args()
    main(Config(steps=a.steps, workers=a.workers))
