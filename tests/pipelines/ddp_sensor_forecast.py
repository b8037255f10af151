"""Forecast of machine sensors with a GRU, two gloo processes on one machine.

    python ddp_sensor_forecast.py --epochs 4
"""
import argparse
import os
import socket
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

WINDOW, HORIZON, CHANNELS = 24, 4, 3


def simulate(length, seed=5):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(length).float()
    load = torch.sin(t / 9) + 0.5 * torch.sin(t / 31)
    temp = torch.zeros(length)
    for i in range(1, length):
        temp[i] = 0.9 * temp[i - 1] + 0.1 * load[i - 1]
    vib = load.abs() * (1 + 0.2 * torch.sin(t / 4))
    x = torch.stack([load, temp, vib], 1)
    return x + 0.05 * torch.randn(x.shape, generator=g)


class Windows(Dataset):
    def __init__(self, series):
        self.series = series

    def __len__(self):
        return len(self.series) - WINDOW - HORIZON + 1

    def __getitem__(self, i):
        return (
            self.series[i : i + WINDOW],
            self.series[i + WINDOW : i + WINDOW + HORIZON],
        )


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(CHANNELS, hidden, batch_first=True)
        self.out = nn.Linear(hidden, HORIZON * CHANNELS)

    def forward(self, x):
        _, h = self.gru(x)
        # predict the change from the last measured value
        return x[:, -1:, :] + self.out(h[-1]).view(-1, HORIZON, CHANNELS)


def all_sum(*values):
    t = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(t)
    return t.tolist()


def evaluate(model, data, rank, world):
    # each rank takes every world-th window, so that none is counted twice
    model.eval()
    part = torch.utils.data.Subset(data, range(rank, len(data), world))
    se, ae, n = 0.0, 0.0, 0
    with torch.no_grad():
        for x, y in DataLoader(part, batch_size=64):
            err = model.module(x) - y
            se += err.pow(2).sum().item()
            ae += err.abs().sum().item()
            n += err.numel()
    model.train()
    se, ae, n = all_sum(se, ae, n)
    return se / n, ae / n


def worker(rank, world, port, args):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)

    series = simulate(1100)
    n_train = 880
    mean, std = series[:n_train].mean(0), series[:n_train].std(0)
    series = (series - mean) / std
    train, valid = Windows(series[:n_train]), Windows(series[n_train:])

    sampler = DistributedSampler(
        train, num_replicas=world, rank=rank, shuffle=True, seed=args.seed
    )
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)

    torch.manual_seed(args.seed)
    model = DDP(Forecaster())
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    n_batches = len(loader)
    updates_per_epoch = -(-n_batches // args.accum)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=1e-2, total_steps=updates_per_epoch * args.epochs
    )
    mse = nn.MSELoss(reduction="none")

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total, count = 0.0, 0
        opt.zero_grad()
        for i, (x, y) in enumerate(loader):
            group_start = i - i % args.accum
            group_end = min(group_start + args.accum, n_batches)
            # windows of this group on this rank; the last group and last batch may be smaller
            n_group = (
                min(group_end * args.batch_size, len(sampler))
                - group_start * args.batch_size
            )
            last = i + 1 == group_end
            with nullcontext() if last else model.no_sync():
                per_window = mse(model(x), y).mean((1, 2))
                (per_window.sum() / n_group).backward()
            total += per_window.sum().item()
            count += len(x)
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
        total, count = all_sum(total, count)
        val_mse, val_mae = evaluate(model, valid, rank, world)
        if rank == 0:
            print(
                f"epoch {epoch} train {total / count:.4f} val mse {val_mse:.4f} mae {val_mae:.4f} "
                f"lr {sched.get_last_lr()[0]:.5f}",
                flush=True,
            )

    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--accum", type=int, default=2)
    ap.add_argument("--world", type=int, default=2)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    mp.spawn(worker, args=(args.world, free_port(), args), nprocs=args.world, join=True)
