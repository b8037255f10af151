"""
Fault detection on vibration windows, 1-D convnet, DistributedDataParallel on CPU.

    python ddp_sensor_faults.py --epochs 5
starts 2 gloo processes by itself.
"""
import argparse
import os
import socket
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WINDOW = 128
FAULTS = ("healthy bearing", "inner race", "outer race", "loose mount")


class Vibration(Dataset):
    """Windows are produced from the index, so that every rank sees the same data set."""

    def __init__(self, n, split_seed):
        self.n, self.split_seed = n, split_seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.split_seed, i))
        label = int(rng.integers(len(FAULTS)))
        t = np.arange(WINDOW) / WINDOW
        speed = rng.uniform(5, 7)
        x = np.sin(2 * np.pi * speed * t + rng.uniform(0, 6.28))
        if label in (1, 2):
            ratio = 3.4 if label == 1 else 2.1
            period = WINDOW / (speed * ratio)
            pos = np.arange(rng.uniform(0, period), WINDOW, period).astype(int)
            hits = np.zeros(WINDOW)
            hits[pos] = rng.uniform(1.5, 2.5)
            x = (
                x
                + np.convolve(
                    hits, np.exp(-np.arange(6) / 1.5) * np.cos(np.arange(6) * 2.5)
                )[:WINDOW]
            )
        elif label == 3:
            x = x + 0.8 * np.sin(np.pi * speed * t + rng.uniform(0, 6.28))
        x = x + rng.normal(0, 0.25, WINDOW)
        return torch.from_numpy(x.astype(np.float32))[None], label


def build_model():
    def conv(cin, cout, stride):
        return nn.Sequential(
            nn.Conv1d(cin, cout, 7, stride, 3, bias=False),
            nn.BatchNorm1d(cout),
            nn.ReLU(),
        )

    return nn.Sequential(
        conv(1, 16, 2),
        conv(16, 32, 2),
        conv(32, 32, 2),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(128, len(FAULTS)),
    )


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@torch.no_grad()
def validate(model, loader, criterion):
    for b in model.buffers():  # running statistics of rank 0 for everybody
        dist.broadcast(b, src=0)
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)  # loss, correct, count
    for x, y in loader:
        logits = model(x)
        sums[0] += criterion(logits, y).item() * len(y)
        sums[1] += (logits.argmax(1) == y).sum().item()
        sums[2] += len(y)
    dist.all_reduce(sums)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def worker(rank, world, port, args, ckpt_path):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(
        args.seed + rank
    )  # dropout differs by rank; DDP broadcasts the weights

    train_set = Vibration(args.train_size, 1)
    val_set = Vibration(400, 2)
    sampler = DistributedSampler(
        train_set, world, rank, shuffle=True, seed=args.seed, drop_last=True
    )
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size // world, sampler=sampler
    )
    # validation is split by hand: no padding, every sample counted once
    val_part = torch.utils.data.Subset(val_set, range(rank, len(val_set), world))
    val_loader = DataLoader(val_part, batch_size=100)

    model = DDP(build_model())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    best = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        meter = torch.zeros(2, dtype=torch.float64)
        for x, y in train_loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            meter += torch.tensor([loss.item() * len(y), len(y)], dtype=torch.float64)
        scheduler.step()
        dist.all_reduce(meter)
        val_loss, val_acc = validate(model.module, val_loader, criterion)
        if rank == 0:
            print(
                f"epoch {epoch}: train {meter[0] / meter[1]:.3f} val {val_loss:.3f} acc {val_acc:.3f}",
                flush=True,
            )
            if val_acc > best:
                torch.save(model.module.state_dict(), ckpt_path)
        best = max(best, val_acc)  # same number on every rank after the all_reduce

    dist.barrier()
    model.module.load_state_dict(torch.load(ckpt_path, weights_only=True))
    val_loss, val_acc = validate(model.module, val_loader, criterion)
    if rank == 0:
        print(
            f"restored best checkpoint: val {val_loss:.3f} acc {val_acc:.3f}",
            flush=True,
        )
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--batch-size", type=int, default=64, help="over all ranks")
    ap.add_argument("--train-size", type=int, default=1600)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--world-size", type=int, default=2)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        ckpt = os.path.join(tmp, "best.pt")
        mp.spawn(
            worker,
            args=(args.world_size, free_port(), args, ckpt),
            nprocs=args.world_size,
            join=True,
        )


if __name__ == "__main__":
    main()
