"""Binary segmentation of blobs with a small U-Net and a callback-style trainer."""
import argparse
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class TrainingParams:
    max_steps: int = 45
    batch_size: int = 8
    batch_accumulate: int = 4
    initial_lr: float = 0.05
    clip_grad_norm: Optional[float] = 0.25
    warmup_steps: int = 5
    seed: int = 17


class BlobDataset(Dataset):
    """noisy pictures sorted by difficulty: discs of various size and contrast"""

    def __init__(self, n, size=24, seed=0):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        centre = torch.rand(n, 2, generator=g) * (size - 10) + 5
        radius = torch.rand(n, generator=g) * 5 + 2
        dist = (
            (yy - centre[:, 0, None, None]) ** 2 + (xx - centre[:, 1, None, None]) ** 2
        ).sqrt()
        self.mask = (dist < radius[:, None, None]).float()[:, None]
        contrast = torch.rand(n, 1, 1, 1, generator=g) * 1.5 + 0.5
        self.img = self.mask * contrast + 0.5 * torch.randn(
            n, 1, size, size, generator=g
        )

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        return self.img[i], self.mask[i]


def conv_block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.ReLU(),
    )


class MiniUNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.d1, self.d2 = conv_block(1, w), conv_block(w, 2 * w)
        self.mid = conv_block(2 * w, 4 * w)
        self.u2, self.u1 = conv_block(6 * w, 2 * w), conv_block(3 * w, w)
        self.head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.head(a)


def bce_dice(logits, mask):
    p = logits.sigmoid()
    inter = (p * mask).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice.mean()


class SegTrainer:
    def __init__(self, net, params, fixed=False, keep_reference=False):
        self.net, self.tp, self.fixed = net, params, fixed
        self.optimizer = torch.optim.SGD(
            net.parameters(), lr=params.initial_lr, momentum=0.9, weight_decay=1e-4
        )
        self.updates = 0
        self.keep_reference = keep_reference
        self.reference, self.cosines = None, []

    def on_update_start(self):
        lr = self.tp.initial_lr * min(1.0, (self.updates + 1) / self.tp.warmup_steps)
        for g in self.optimizer.param_groups:
            g["lr"] = lr

    def backward_step(self, loss, batch_idx):
        """returns True when the parameters moved"""
        if self.keep_reference:
            self._remember(loss)
        (loss / self.tp.batch_accumulate).backward()
        last = (batch_idx + 1) % self.tp.batch_accumulate == 0
        clip_now = last if self.fixed else True
        if self.tp.clip_grad_norm and clip_now:
            torch.nn.utils.clip_grad_norm_(
                self.net.parameters(), self.tp.clip_grad_norm
            )
        if last:
            self.on_update_start()
            if self.keep_reference:
                self._compare()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.updates += 1
        return last

    def _remember(self, loss):
        g = torch.autograd.grad(loss, list(self.net.parameters()), retain_graph=True)
        g = torch.cat([t.flatten() for t in g])
        self.reference = g if self.reference is None else self.reference + g

    def _compare(self):
        now = torch.cat([p.grad.flatten() for p in self.net.parameters()])
        self.cosines.append(F.cosine_similarity(now, self.reference, dim=0).item())
        self.reference = None

    def train(self, loader, valid):
        batch_idx = 0
        while self.updates < self.tp.max_steps:
            for img, mask in loader:
                loss = bce_dice(self.net(img), mask)
                moved = self.backward_step(loss, batch_idx)
                batch_idx += 1
                if moved and self.updates % 15 == 0:
                    print(
                        f"update {self.updates}  loss {loss.item():.4f}  valid IoU {self.iou(valid):.4f}"
                    )
                if self.updates >= self.tp.max_steps:
                    break

    @torch.no_grad()
    def iou(self, valid):
        p = self.net(valid.img) > 0
        m = valid.mask > 0.5
        return ((p & m).sum() / (p | m).sum()).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=TrainingParams.max_steps)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    tp = TrainingParams(max_steps=args.steps)
    torch.manual_seed(tp.seed)
    train_set, valid_set = BlobDataset(320, seed=1), BlobDataset(48, seed=2)
    loader = DataLoader(
        train_set,
        tp.batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(tp.seed),
    )
    trainer = SegTrainer(MiniUNet(), tp, fixed=args.fixed, keep_reference=args.prove)
    trainer.train(loader, valid_set)
    print(f"final valid IoU {trainer.iou(valid_set):.4f}")
    if args.prove:
        worst = min(trainer.cosines)
        print(
            f"smallest cosine between applied gradient and mean gradient of the window: {worst:.6f}"
        )
        print("fault shows:", "yes" if worst < 0.9999 else "no")


if __name__ == "__main__":
    main()
