#!/usr/bin/env python
"""
Data parallel training on two CPU processes (gloo).

Parcel damage score (regression, 0..10) from scanner features. Started as a plain
`python parcel_ddp.py`, the workers are spawned here.
"""
import argparse
import contextlib
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, Subset
from torch.utils.data.distributed import DistributedSampler


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument(
        "--batch-size", type=int, default=32, help="per process and micro step"
    )
    p.add_argument("--accum", type=int, default=2)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def build_data(seed):
    g = torch.Generator().manual_seed(seed)  # same data in all processes
    x = torch.randn(2048 + 512, 24, generator=g)
    w1 = torch.randn(24, 8, generator=g) / 24**0.5
    y = torch.tanh(x @ w1).abs().sum(1, keepdim=True) + 0.6 * x[:, :1] * x[:, 1:2]
    y = 5 + 1.5 * y + 0.2 * torch.randn(len(y), 1, generator=g)
    train_x, val_x, train_y, val_y = x[:2048], x[2048:], y[:2048], y[2048:]
    mu, sd = train_y.mean(), train_y.std()
    return (
        TensorDataset(train_x, (train_y - mu) / sd),
        TensorDataset(val_x, (val_y - mu) / sd),
        sd.item(),
    )


def build_model():
    return nn.Sequential(
        nn.Linear(24, 96),
        nn.LayerNorm(96),
        nn.GELU(),
        nn.Linear(96, 96),
        nn.LayerNorm(96),
        nn.GELU(),
        nn.Dropout(0.05),
        nn.Linear(96, 1),
    )


@torch.no_grad()
def validate(model, loader):
    """Sum over this rank's share, then over the ranks."""
    model.eval()
    stat = torch.zeros(3, dtype=torch.float64)
    for x, y in loader:
        err = model(x) - y
        stat += torch.stack(
            [err.pow(2).sum(), err.abs().sum(), torch.tensor(float(len(y)))]
        ).double()
    dist.all_reduce(stat)
    model.train()
    return (stat[0] / stat[2]).item(), (stat[1] / stat[2]).item()


def train_epoch(model, loader, optimizer, scheduler, criterion, accum):
    model.train()
    total, count = 0.0, 0
    n_batches = len(loader)
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        last_of_group = (i + 1) % accum == 0 or i + 1 == n_batches
        group_start = (i // accum) * accum
        group_size = min(accum, n_batches - group_start)
        with contextlib.nullcontext() if last_of_group else model.no_sync():
            loss = criterion(model(x), y)
            (loss / group_size).backward()
        total += loss.item() * len(y)
        count += len(y)
        if last_of_group:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    return total, count


def worker(rank, args, port, ckpt):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    torch.manual_seed(args.seed + rank)  # dropout differs between the ranks

    train_set, val_set, sd = build_data(args.seed)
    sampler = DistributedSampler(
        train_set, shuffle=True, seed=args.seed, drop_last=True
    )
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    # every validation row on exactly one rank
    val_share = Subset(val_set, range(rank, len(val_set), args.world_size))
    val_loader = DataLoader(val_share, batch_size=128)

    model = DDP(build_model())  # rank 0's weights are broadcast here
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    updates = args.epochs * -(-len(train_loader) // args.accum)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates)
    criterion = nn.MSELoss()

    best = float("inf")
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total, count = train_epoch(
            model, train_loader, optimizer, scheduler, criterion, args.accum
        )
        t = torch.tensor([total, count], dtype=torch.float64)
        dist.all_reduce(t)
        mse, mae = validate(model.module, val_loader)
        if rank == 0:
            print(
                f"epoch {epoch:2d} train {t[0] / t[1]:.4f} val mse {mse:.4f} "
                f"val mae {mae * sd:.3f} points lr {scheduler.get_last_lr()[0]:.2e}",
                flush=True,
            )
        if mse < best:  # the same number on all ranks
            best = mse
            if rank == 0:
                torch.save({"model": model.module.state_dict(), "epoch": epoch}, ckpt)

    dist.barrier()
    state = torch.load(ckpt, map_location="cpu")
    model.module.load_state_dict(state["model"])
    mse, mae = validate(model.module, val_loader)
    if rank == 0:
        print(
            f"best epoch {state['epoch']}: val mse {mse:.4f}, mae {mae * sd:.3f} points"
        )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    args = parse()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(
            worker,
            args=(args, free_port(), os.path.join(tmp, "best.pt")),
            nprocs=args.world_size,
        )
