"""Nuclei segmentation with a mini U-Net (synthetic microscopy), EMA weights for evaluation."""
import argparse
import logging
from copy import deepcopy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(
    level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
)
log = logging.getLogger("unet")


class NucleiDataset(Dataset):
    """Every index has its own generator, so the pictures are the same each epoch."""

    def __init__(self, n, base_seed, size=40, augment=False):
        self.samples = [
            self._render(np.random.default_rng([base_seed, i]), size) for i in range(n)
        ]
        self.augment = augment

    @staticmethod
    def _render(rng, size):
        yy, xx = np.mgrid[0:size, 0:size]
        mask = np.zeros((size, size), dtype=bool)
        for _ in range(rng.integers(2, 6)):
            cy, cx = rng.uniform(4, size - 4, 2)
            a, b = rng.uniform(3, 7, 2)
            mask |= ((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2 < 1
        img = 0.3 + 0.25 * mask + rng.normal(0, 0.12, mask.shape) + 0.1 * (xx / size)
        return img.astype(np.float32)[None], mask.astype(np.float32)[None]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        img, mask = (torch.from_numpy(a) for a in self.samples[i])
        if self.augment:  # same flip / rotation for both
            k = int(torch.randint(0, 4, ()))
            img, mask = torch.rot90(img, k, (1, 2)), torch.rot90(mask, k, (1, 2))
            if torch.rand(()) < 0.5:
                img, mask = img.flip(2), mask.flip(2)
            img = img * (0.9 + 0.2 * torch.rand(()))
        return (img - 0.4) / 0.2, mask


class DoubleConv(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(
            nn.Conv2d(i, o, 3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.d1, self.d2, self.mid = (
            DoubleConv(1, c),
            DoubleConv(c, 2 * c),
            DoubleConv(2 * c, 4 * c),
        )
        self.up2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, stride=2)
        self.u2 = DoubleConv(4 * c, 2 * c)
        self.up1 = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.u1 = DoubleConv(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([b, self.up2(m)], dim=1))
        y = self.u1(torch.cat([a, self.up1(y)], dim=1))
        return self.out(y)


class DiceBCELoss(nn.Module):
    def __init__(self, dice_weight=0.5, eps=1.0):
        super().__init__()
        self.w, self.eps = dice_weight, eps

    def forward(self, logits, target):
        bce = F.binary_cross_entropy_with_logits(logits, target)
        p = logits.sigmoid().flatten(1)
        t = target.flatten(1)
        dice = (2 * (p * t).sum(1) + self.eps) / (p.sum(1) + t.sum(1) + self.eps)
        return (1 - self.w) * bce + self.w * (1 - dice).mean()


class ModelEMA:
    """Moving average of the weights (decay ramps up), BN buffers are copied."""

    def __init__(self, model, decay=0.98):
        self.module = deepcopy(model).eval()
        self.module.requires_grad_(False)
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for e, p in zip(self.module.parameters(), model.parameters()):
            e.lerp_(p, 1 - d)
        for e, b in zip(self.module.buffers(), model.buffers()):
            e.copy_(b)


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.model = UNet()
        self.ema = ModelEMA(self.model)
        self.loss_fn = DiceBCELoss()
        self.train_dl = DataLoader(
            NucleiDataset(240, 11, augment=True),
            batch_size=16,
            shuffle=True,
            generator=torch.Generator().manual_seed(args.seed),
        )
        self.valid_dl = DataLoader(NucleiDataset(60, 12), batch_size=25)
        self.opt = torch.optim.AdamW(
            self.model.parameters(), lr=args.lr, weight_decay=1e-3
        )
        self.sched = torch.optim.lr_scheduler.OneCycleLR(
            self.opt,
            max_lr=args.lr,
            epochs=args.epochs,
            steps_per_epoch=len(self.train_dl),
            pct_start=0.2,
        )
        self.best = -1.0
        self.best_weights = None

    def train_epoch(self):
        self.model.train()
        total, n = 0.0, 0
        for img, mask in self.train_dl:
            self.opt.zero_grad(set_to_none=True)
            loss = self.loss_fn(self.model(img), mask)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.opt.step()
            self.sched.step()
            self.ema.update(self.model)
            total += loss.item() * img.size(0)
            n += img.size(0)
        return total / n

    @torch.no_grad()
    def evaluate(self, net):
        net.eval()
        loss, n = 0.0, 0
        inter = union = 0.0
        for img, mask in self.valid_dl:
            logits = net(img)
            loss += self.loss_fn(logits, mask).item() * len(img)
            n += len(img)
            pred = logits > 0
            truth = mask > 0.5
            inter += (pred & truth).sum().item()
            union += (pred | truth).sum().item()
        return loss / n, inter / max(union, 1.0)

    def fit(self):
        for epoch in range(1, self.args.epochs + 1):
            tr = self.train_epoch()
            raw_loss, raw_iou = self.evaluate(self.model)
            ema_loss, ema_iou = self.evaluate(self.ema.module)
            log.info(
                "epoch %d train %.4f | raw %.4f iou %.3f | ema %.4f iou %.3f",
                epoch,
                tr,
                raw_loss,
                raw_iou,
                ema_loss,
                ema_iou,
            )
            if ema_iou > self.best:
                self.best = ema_iou
                self.best_weights = deepcopy(self.ema.module.state_dict())
        final = UNet()
        final.load_state_dict(self.best_weights)
        log.info("best ema iou %.3f, reloaded %.3f", self.best, self.evaluate(final)[1])


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--lr", type=float, default=6e-3)
    p.add_argument("--seed", type=int, default=0)
    Trainer(p.parse_args()).fit()
