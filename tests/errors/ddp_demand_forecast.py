"""Demand forecasting for many shops, data-parallel on two CPU processes.

Every process trains on its half of the windows (DistributedSampler), a GRU
predicts the next seven days from the previous 28.
"""
import argparse
import os
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

HISTORY, HORIZON = 28, 7


class ShopWindows(Dataset):
    def __init__(self, shops, first_day, last_day, seed=0):
        rng = np.random.default_rng(seed)
        days = np.arange(400)
        weekly = rng.uniform(0.5, 1.5, size=(shops, 7))
        level = rng.uniform(5, 20, size=(shops, 1))
        trend = rng.normal(0, 0.01, size=(shops, 1))
        noise = rng.normal(0, 0.8, size=(shops, len(days)))
        sales = level * weekly[:, days % 7] + trend * days + noise
        self.scale = sales[:, :300].mean(1, keepdims=True)
        self.sales = torch.tensor(sales / self.scale, dtype=torch.float32)
        self.index = [
            (s, d)
            for s in range(shops)
            for d in range(first_day, last_day - HISTORY - HORIZON, 9)
        ]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        shop, day = self.index[i]
        x = self.sales[shop, day : day + HISTORY]
        y = self.sales[shop, day + HISTORY : day + HISTORY + HORIZON]
        weekday = torch.arange(day, day + HISTORY) % 7
        return x, weekday, y, i


class Forecaster(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.weekday = nn.Embedding(7, 4)
        self.gru = nn.GRU(5, hidden, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, HORIZON)
        )

    def forward(self, x, weekday):
        z = torch.cat([x.unsqueeze(-1), self.weekday(weekday)], dim=-1)
        _, h = self.gru(z)
        return self.head(h[-1])


@torch.no_grad()
def validate(model, loader):
    model.eval()
    err, n = 0.0, 0
    for x, weekday, y, _ in loader:
        err += (model(x, weekday) - y).abs().sum().item()
        n += y.numel()
    # average over both processes
    totals = torch.tensor([err, float(n)])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


def make_loaders(rank, world_size, args):
    train_set = ShopWindows(30, 0, 300)
    val_set = ShopWindows(30, 300, 400)
    sampler = DistributedSampler(
        train_set,
        num_replicas=world_size,
        rank=rank,
        shuffle=True,
        seed=args.seed,
        drop_last=True,
    )
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True
    )
    val_sampler = DistributedSampler(
        val_set, num_replicas=world_size, rank=rank, shuffle=False
    )
    val_loader = DataLoader(val_set, batch_size=128, sampler=val_sampler)
    return sampler, train_loader, val_loader


def worker(rank, world_size, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    sampler, train_loader, val_loader = make_loaders(rank, world_size, args)

    model = DDP(Forecaster())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.93)
    loss_fn = nn.SmoothL1Loss(beta=0.5)

    order = []
    step, epoch = 0, 0
    while step < args.steps:
        if args.fixed:
            sampler.set_epoch(epoch)
        model.train()
        seen, total = [], 0.0
        for x, weekday, y, ids in train_loader:
            if step >= args.steps:
                break
            optimizer.zero_grad(set_to_none=True)
            loss = loss_fn(model(x, weekday), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            step += 1
            total += loss.item()
            seen.append(tuple(ids.tolist()))
        scheduler.step()
        order.append(seen)
        mae = validate(model.module, val_loader)
        if rank == 0:
            print(
                f"epoch {epoch:2d} step {step:4d} loss {total / len(seen):.5f} val mae {mae:.4f} "
                f"lr {scheduler.get_last_lr()[0]:.2e}",
                flush=True,
            )
        epoch += 1

    if rank == 0 and args.prove:
        k = min(len(order[0]), len(order[1])) if len(order) > 1 else 0
        same = k > 0 and order[0][:k] == order[1][:k]
        print("fault shows:", "yes" if same else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=5)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    mp.spawn(worker, args=(2, free_port(), args), nprocs=2, join=True)


if __name__ == "__main__":
    main()
