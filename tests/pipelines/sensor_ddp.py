"""Activity recognition from accelerometer windows, DistributedDataParallel on CPU (gloo).

    python sensor_ddp.py --epochs 5 --world-size 2
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
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler

ACTIVITIES = ["rest", "walk", "run", "stairs", "cycle"]


class AccelWindows(Dataset):
    """64 samples, three axes. Different people have different gains."""

    def __init__(self, n, seed, people):
        rng = np.random.default_rng(seed)
        t = np.arange(64) / 32.0
        base = [(0.1, 0.05), (1.8, 0.5), (3.0, 1.0), (1.4, 0.7), (2.2, 0.4)]
        self.y = rng.integers(0, len(ACTIVITIES), n)
        x = np.zeros((n, 3, 64), dtype=np.float32)
        for i, label in enumerate(self.y):
            f, a = base[label]
            f *= rng.normal(1, 0.08)
            person = people[rng.integers(len(people))]
            gain = 1 + 0.05 * person
            for ax in range(3):
                shape = np.sin(2 * np.pi * f * t + rng.uniform(0, 6.28))
                if label == 3:
                    shape = np.sign(shape) * abs(shape) ** 0.5
                x[i, ax] = gain * a * (1, 0.6, 0.3)[ax] * shape
        x[:, 2] += 1.0  # gravity
        self.x = x + rng.normal(0, 0.2, x.shape).astype(np.float32)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), int(self.y[i])


class ConvNet1d(nn.Module):
    def __init__(self, n_out, width=24):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(3, width, 7, padding=3),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, width * 2, 5, padding=2),
            nn.GroupNorm(4, width * 2),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width * 2, width * 2, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(width * 2, n_out))

    def forward(self, x):
        return self.classifier(self.features(x))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def reduce_sum(*values):
    t = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return t.tolist()


def evaluate(model, loader, criterion):
    model.eval()
    loss_sum = correct = count = 0
    with torch.no_grad():
        for x, y in loader:
            out = model.module(x)
            loss_sum += criterion(out, y).item() * len(y)
            correct += (out.argmax(1) == y).sum().item()
            count += len(y)
    loss_sum, correct, count = reduce_sum(loss_sum, correct, count)
    return loss_sum / count, correct / count


def train_one_epoch(model, loader, optimizer, scheduler, criterion, accumulate):
    model.train()
    total = count = 0.0
    n_batches = len(loader)
    for i, (x, y) in enumerate(loader):
        first = (i // accumulate) * accumulate
        group = min(accumulate, n_batches - first)  # the last group can be shorter
        last_of_group = i == first + group - 1
        with contextlib.nullcontext() if last_of_group else model.no_sync():
            loss = criterion(model(x), y)
            (loss / group).backward()
        total += loss.item() * len(y)
        count += len(y)
        if last_of_group:
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
    total, count = reduce_sum(total, count)
    return total / count


def worker(rank, world_size, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + rank)  # weights are broadcast from rank 0 by DDP

    train_set = AccelWindows(1600, seed=1, people=range(0, 12))
    val_set = AccelWindows(501, seed=2, people=range(12, 16))
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
    # every rank takes its own slice of the validation set, nothing is duplicated
    val_part = Subset(val_set, range(rank, len(val_set), world_size))
    val_loader = DataLoader(val_part, batch_size=128)

    model = DDP(ConvNet1d(len(ACTIVITIES)))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-3)
    steps_per_epoch = -(-len(train_loader) // args.accumulate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=args.epochs * steps_per_epoch
    )

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_loss = train_one_epoch(
            model, train_loader, optimizer, scheduler, criterion, args.accumulate
        )
        val_loss, val_acc = evaluate(model, val_loader, criterion)
        if rank == 0:
            print(
                f"epoch {epoch}: train {train_loss:.4f} val {val_loss:.4f} acc {val_acc:.3f} "
                f"lr {scheduler.get_last_lr()[0]:.2e}",
                flush=True,
            )

    if rank == 0:
        n = sum(p.numel() for p in model.module.parameters())
        print(f"done, {n} parameters, {world_size} ranks")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    mp.spawn(
        worker,
        args=(args.world_size, free_port(), args),
        nprocs=args.world_size,
        join=True,
    )
