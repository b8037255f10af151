#!/usr/bin/env python
"""
Binary road segmentation from aerial tiles, two processes (gloo), gradient accumulation.

    python road_segmentation_ddp.py --steps 60
"""
import argparse
import contextlib
import os
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORLD = 2
ACCUM = 4


class Tiles(Dataset):
    """Tiles of 32x32: noisy ground, houses and one or two roads."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.images, self.masks = zip(*[self.draw(rng) for _ in range(n)])

    @staticmethod
    def draw(rng, s=32):
        yy, xx = np.mgrid[0:s, 0:s].astype(np.float32)
        ground = np.array([0.3, 0.42, 0.28]) + rng.normal(0, 0.06, 3)
        img = np.tile(ground[:, None, None], (1, s, s))
        mask = np.zeros((s, s), dtype=np.float32)
        for _ in range(rng.integers(1, 3)):
            a = rng.uniform(0, np.pi)
            cx, cy = rng.uniform(8, 24, 2)
            bend = rng.uniform(-0.02, 0.02)
            u = (xx - cx) * np.cos(a) + (yy - cy) * np.sin(a)
            v = -(xx - cx) * np.sin(a) + (yy - cy) * np.cos(a) + bend * u**2
            mask[np.abs(v) < rng.uniform(1.3, 2.5)] = 1
        for _ in range(rng.integers(1, 5)):
            x0, y0 = rng.integers(0, 27, 2)
            w, h = rng.integers(3, 7, 2)
            img[:, y0 : y0 + h, x0 : x0 + w] = rng.uniform(0.45, 0.7)
        road = np.array([0.5, 0.5, 0.52]) + rng.normal(0, 0.04, 3)
        img = np.where(mask[None] > 0, road[:, None, None], img)
        img = img + rng.normal(0, 0.08, img.shape)
        return img.astype(np.float32), mask[None]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), torch.from_numpy(self.masks[i])


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU())


class SmallUNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1, self.d2, self.mid = conv(3, w), conv(w, 2 * w), conv(2 * w, 4 * w)
        self.u2, self.u1 = conv(6 * w, 2 * w), conv(3 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))
        return self.out(a)


def dice_loss(logits, mask):
    p = logits.sigmoid()
    inter = (p * mask).sum((1, 2, 3))
    return (1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)).mean()


def iou(model, loader):
    model.eval()
    inter = union = 0.0
    with torch.no_grad():
        for x, m in loader:
            p = model(x) > 0
            inter += (p & (m > 0)).sum().item()
            union += (p | (m > 0)).sum().item()
    model.train()
    return inter / max(union, 1)


def make_loaders(rank):
    train_set = Tiles(256, seed=1)
    sampler = DistributedSampler(
        train_set, WORLD, rank, shuffle=True, seed=5, drop_last=True
    )
    loader = DataLoader(train_set, batch_size=8, sampler=sampler, drop_last=True)
    return loader, DataLoader(Tiles(64, seed=2), batch_size=32)


def train(model, loader, rank, args):
    """Returns the gradient norms of the updates and, with --prove, of single micro-batches."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4
    )
    step, micro, epoch = 0, 0, 0
    micro_norms, ratio = [], []
    while step < args.steps:
        loader.sampler.set_epoch(epoch)
        for x, m in loader:
            last = (micro + 1) % ACCUM == 0
            ctx = contextlib.nullcontext() if last else model.no_sync()
            with ctx:
                logits = model(x)
                loss = F.binary_cross_entropy_with_logits(logits, m) + dice_loss(
                    logits, m
                )
                shown = loss.item()
                if args.fixed:
                    loss = loss / ACCUM
                loss.backward()
            if args.prove and micro % ACCUM == 0:
                # norm of the gradient of this one micro-batch, as for a step without accumulation
                g = torch.autograd.grad(
                    dice_loss(model.module(x), m)
                    + F.binary_cross_entropy_with_logits(model.module(x), m),
                    list(model.parameters()),
                )
                micro_norms.append(torch.sqrt(sum(t.pow(2).sum() for t in g)).item())
            micro += 1
            if last:
                total = torch.sqrt(
                    sum(p.grad.pow(2).sum() for p in model.parameters())
                ).item()
                ratio.append(total)
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                if rank == 0 and step % 10 == 0:
                    print(
                        f"step {step:3d} epoch {epoch} loss {shown:.4f} grad norm {total:.3f}",
                        flush=True,
                    )
                if step >= args.steps:
                    break
        epoch += 1
    return ratio, micro_norms


def worker(rank, port, args):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(5)

    loader, val_loader = make_loaders(rank)
    model = DDP(SmallUNet())
    ratio, micro_norms = train(model, loader, rank, args)

    score = iou(model.module, val_loader)
    if rank == 0:
        print(f"validation IoU {score:.4f}")
        if args.prove:
            r = float(np.mean(ratio)) / float(np.mean(micro_norms))
            print(
                f"norm of the accumulated gradient / norm of a micro-batch gradient: {r:.2f}"
            )
            print("fault shows:", "yes" if r > 1.5 else "no")
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    mp.spawn(worker, args=(free_port(), args), nprocs=WORLD)
