"""
U-Net for blob ("cell nuclei") segmentation, dice + BCE, EMA of the weights.
Pictures are generated on the fly by an IterableDataset with two loader workers.
"""
import argparse
import copy
import logging
from dataclasses import dataclass, asdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

logging.basicConfig(
    level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
)
log = logging.getLogger("seg")


@dataclass
class Settings:
    steps: int = 160
    batch: int = 12
    size: int = 32
    width: int = 8
    lr: float = 4e-3
    power: float = 0.9
    ema_decay: float = 0.97
    workers: int = 2
    seed: int = 7
    eval_every: int = 40


def make_picture(rng, size):
    yy, xx = np.mgrid[:size, :size].astype(np.float32)
    mask = np.zeros((size, size), dtype=np.float32)
    img = rng.normal(0.2, 0.08, (size, size)).astype(np.float32)
    img += 0.15 * (xx / size) * rng.uniform(-1, 1)
    for _ in range(rng.integers(2, 6)):
        cy, cx = rng.uniform(3, size - 3, 2)
        a, b = rng.uniform(2.0, 5.0, 2)
        t = rng.uniform(0, np.pi)
        u = (xx - cx) * np.cos(t) + (yy - cy) * np.sin(t)
        v = -(xx - cx) * np.sin(t) + (yy - cy) * np.cos(t)
        inside = (u / a) ** 2 + (v / b) ** 2 <= 1
        mask[inside] = 1
        img[inside] += rng.uniform(0.2, 0.5)
    return img[None], mask[None]


class EndlessCells(IterableDataset):
    def __init__(self, size, seed):
        self.size, self.seed = size, seed

    def __iter__(self):
        info = get_worker_info()
        worker = 0 if info is None else info.id
        rng = np.random.default_rng([self.seed, worker])
        while True:
            img, mask = make_picture(rng, self.size)
            yield torch.from_numpy(img), torch.from_numpy(mask)


def fixed_set(n, size, seed):
    rng = np.random.default_rng([seed, 10_000])
    pairs = [make_picture(rng, size) for _ in range(n)]
    return TensorDataset(
        torch.from_numpy(np.stack([p[0] for p in pairs])),
        torch.from_numpy(np.stack([p[1] for p in pairs])),
    )


class ConvGN(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1),
            nn.GroupNorm(4, cout),
            nn.SiLU(),
            nn.Conv2d(cout, cout, 3, padding=1),
            nn.GroupNorm(4, cout),
            nn.SiLU(),
        )


class UNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.d1, self.d2, self.mid = (
            ConvGN(1, w),
            ConvGN(w, 2 * w),
            ConvGN(2 * w, 4 * w),
        )
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2)
        self.u2 = ConvGN(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.u1 = ConvGN(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([self.up2(c), b], dim=1))
        a = self.u1(torch.cat([self.up1(b), a], dim=1))
        return self.out(a)


class DiceBCE(nn.Module):
    def __init__(self, dice_weight=0.5, eps=1.0):
        super().__init__()
        self.w, self.eps = dice_weight, eps

    def forward(self, logits, target):
        bce = F.binary_cross_entropy_with_logits(logits, target)
        p = torch.sigmoid(logits)
        inter = (p * target).sum(dim=(1, 2, 3))
        total = p.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
        dice = 1 - ((2 * inter + self.eps) / (total + self.eps)).mean()
        return self.w * dice + (1 - self.w) * bce


class EMA:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
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


@torch.inference_mode()
def iou(model, loader):
    was_training = model.training
    model.eval()
    inter = union = 0.0
    for x, m in loader:
        pred = model(x) > 0
        m = m > 0.5
        inter += (pred & m).sum().item()
        union += (pred | m).sum().item()
    model.train(was_training)
    return inter / max(union, 1.0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Settings.steps)
    ap.add_argument("--workers", type=int, default=Settings.workers)
    s = Settings(**vars(ap.parse_args()))
    log.info("settings %s", asdict(s))
    torch.manual_seed(s.seed)

    train = DataLoader(
        EndlessCells(s.size, s.seed), batch_size=s.batch, num_workers=s.workers
    )
    val = DataLoader(fixed_set(64, s.size, s.seed), batch_size=32)

    net = UNet(s.width)
    ema = EMA(net, s.ema_decay)
    criterion = DiceBCE()
    opt = torch.optim.AdamW(net.parameters(), lr=s.lr, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.PolynomialLR(
        opt, total_iters=s.steps, power=s.power
    )

    with torch.no_grad():
        shape = net(torch.zeros(2, 1, s.size, s.size)).shape
    assert shape == (2, 1, s.size, s.size), shape

    running = None
    for step, (x, m) in zip(range(1, s.steps + 1), train):
        opt.zero_grad()
        loss = criterion(net(x), m)
        loss.backward()
        gnorm = nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        sched.step()
        ema.update(net)
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        if step % s.eval_every == 0 or step == s.steps:
            log.info(
                "step %d loss %.3f |g| %.2f IoU %.3f IoU(ema) %.3f",
                step,
                running,
                gnorm.item(),
                iou(net, val),
                iou(ema.module, val),
            )


if __name__ == "__main__":
    main()
