"""Skin lesion segmentation with a mini U-Net.

Pictures do not fit in a big batch on our card, so we accumulate over micro-batches.
"""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class TrainConfig:
    steps: int = 40
    micro_batch: int = 4
    accumulate: int = 4
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 1e-4
    size: int = 32
    seed: int = 21


class LesionDataset(Dataset):
    def __init__(self, n, size, seed):
        self.n, self.size, self.seed = n, size, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        line = torch.linspace(-1, 1, self.size)
        yy, xx = torch.meshgrid(line, line, indexing="ij")
        cx, cy, rx, ry, turn = (torch.rand(5, generator=g) * 2 - 1).tolist()
        cx, cy, rx, ry = 0.4 * cx, 0.4 * cy, 0.35 + 0.15 * rx, 0.35 + 0.15 * ry
        u = (xx - cx) * (1 - abs(turn) / 2) + (yy - cy) * turn / 2
        v = (yy - cy) * (1 - abs(turn) / 2) - (xx - cx) * turn / 2
        mask = ((u / rx) ** 2 + (v / ry) ** 2 < 1).float()
        skin = torch.tensor([0.85, 0.65, 0.55])[:, None, None] + 0.1 * torch.randn(
            1, generator=g
        )
        lesion = torch.tensor([0.55, 0.40, 0.35])[:, None, None]
        img = (
            skin * (1 - mask)
            + lesion * mask
            + 0.15 * torch.randn(3, self.size, self.size, generator=g)
        )
        # a few hairs
        for _ in range(3):
            row = int(torch.randint(0, self.size, (1,), generator=g))
            img[:, row] = 0.2
        return (img - 0.6) / 0.25, mask[None]


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.ReLU(),
    )


class MiniUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.d1 = double_conv(3, width)
        self.d2 = double_conv(width, 2 * width)
        self.d3 = double_conv(2 * width, 4 * width)
        self.u2 = double_conv(6 * width, 2 * width)
        self.u1 = double_conv(3 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.out(a)


def bce_dice(logits, mask):
    p = torch.sigmoid(logits)
    overlap = (p * mask).sum((1, 2, 3))
    dice = 1 - (2 * overlap + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice.mean()


class SegTrainer:
    def __init__(self, cfg, average_micro_batches):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.model = MiniUNet()
        self.optim = torch.optim.SGD(
            self.model.parameters(),
            lr=cfg.lr,
            momentum=cfg.momentum,
            weight_decay=cfg.weight_decay,
        )
        self.sched = torch.optim.lr_scheduler.PolynomialLR(
            self.optim, total_iters=cfg.steps, power=0.9
        )
        self.loader = DataLoader(
            LesionDataset(320, cfg.size, 1),
            batch_size=cfg.micro_batch,
            shuffle=True,
            drop_last=True,
        )
        self.val_loader = DataLoader(LesionDataset(48, cfg.size, 2), batch_size=16)
        self.loss_factor = 1.0 / cfg.accumulate if average_micro_batches else 1.0
        self.last_inputs = []
        self.last_grad = None

    def validate(self):
        self.model.eval()
        inter = union = 0.0
        with torch.no_grad():
            for img, mask in self.val_loader:
                pred = (self.model(img) > 0).float()
                inter += (pred * mask).sum().item()
                union += ((pred + mask) > 0).float().sum().item()
        self.model.train()
        return inter / max(union, 1.0)

    def fit(self, keep_last=False):
        self.model.train()
        step, micro, shown = 0, 0, 0.0
        self.optim.zero_grad()
        while step < self.cfg.steps:
            for img, mask in self.loader:
                loss = bce_dice(self.model(img), mask)
                (loss * self.loss_factor).backward()
                shown += loss.item() / self.cfg.accumulate
                micro += 1
                if keep_last and step == self.cfg.steps - 1:
                    self.last_inputs.append((img, mask))
                if micro % self.cfg.accumulate:
                    continue
                if keep_last and step == self.cfg.steps - 1:
                    self.last_grad = [p.grad.clone() for p in self.model.parameters()]
                    self.mean_grad = self.whole_batch_gradient()
                self.optim.step()
                self.sched.step()
                self.optim.zero_grad()
                step += 1
                if step % 10 == 0:
                    print(
                        f"step {step:3d} loss {shown / 10:.4f} IoU {self.validate():.4f}"
                    )
                    shown = 0.0
                if step >= self.cfg.steps:
                    break

    def whole_batch_gradient(self):
        img = torch.cat([i for i, _ in self.last_inputs])
        mask = torch.cat([m for _, m in self.last_inputs])
        loss = bce_dice(self.model(img), mask)
        return torch.autograd.grad(loss, list(self.model.parameters()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    average = False
    if args.fixed:
        average = True
    trainer = SegTrainer(TrainConfig(steps=args.steps), average)
    trainer.fit(keep_last=args.prove)
    print(f"final IoU {trainer.validate():.4f}")
    if args.prove:
        used = sum(g.pow(2).sum() for g in trainer.last_grad).sqrt().item()
        mean = sum(g.pow(2).sum() for g in trainer.mean_grad).sqrt().item()
        print(
            f"norm of the used gradient / norm for the batch of 16 at once: {used / mean:.3f}"
        )
        print("fault shows:", "yes" if used / mean > 2 else "no")


if __name__ == "__main__":
    main()
