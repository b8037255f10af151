"""Temporal convolutional net (weight-normalised, causal, dilated) that removes hum
from a stream of sensor data. The stream is an IterableDataset sharded over two
persistent workers, each with a generator that worker_init_fn seeds.

    python stream_tcn.py --steps 120
"""

import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WINDOW = 64


class SensorStream(IterableDataset):
    """Recordings with numbers; a worker reads those that fall to it."""

    def __init__(self, recordings, windows_each):
        self.recordings, self.windows_each = recordings, windows_each

    def __iter__(self):
        info = get_worker_info()
        shard, shards = (info.id, info.num_workers) if info else (0, 1)
        for number in range(shard, self.recordings, shards):
            yield from self.read(number)

    def read(self, number):
        g = torch.Generator().manual_seed(number)
        hum_rate = 0.5 + 0.3 * torch.rand((), generator=g)
        t = torch.arange(WINDOW * self.windows_each)
        drift = torch.randn(len(t) // 8 + 1, generator=g).view(1, 1, -1)
        drift = F.interpolate(drift, len(t), mode="linear", align_corners=True)
        clean = drift.view(-1)
        hum = (0.6 + 0.6 * torch.rand((), generator=g)) * torch.sin(hum_rate * t)
        noisy = clean + hum + 0.05 * torch.randn(len(t), generator=g)
        for start in range(0, len(t), WINDOW):
            window = slice(start, start + WINDOW)
            gain = random.uniform(0.8, 1.25)  # the worker's own random numbers
            yield gain * noisy[window].unsqueeze(0), gain * clean[window].unsqueeze(0)


def seed_worker(worker_id):
    random.seed(torch.initial_seed() % 2**32)


class CausalBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = 2 * dilation
        conv = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.conv = weight_norm(conv)
        self.mix = weight_norm(nn.Conv1d(channels, channels, 1))

    def forward(self, x):
        h = torch.relu(self.conv(F.pad(x, (self.pad, 0))))
        return x + self.mix(h)


class TCN(nn.Module):
    def __init__(self, channels=20, levels=4):
        super().__init__()
        self.lift = nn.Conv1d(1, channels, 1)
        self.blocks = nn.Sequential(
            *[CausalBlock(channels, 2**level) for level in range(levels)]
        )
        self.drop_to = nn.Conv1d(channels, 1, 1)

    def forward(self, x):
        return self.drop_to(self.blocks(self.lift(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(18)
    random.seed(18)

    loader = DataLoader(
        SensorStream(recordings=40, windows_each=8),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        worker_init_fn=seed_worker,
    )
    model = TCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimizer, T_0=20, T_mult=2, eta_min=1e-5
    )

    step = epoch = 0
    while step < args.steps:
        total = batches = 0
        for noisy, clean in loader:
            if step >= args.steps:
                continue  # let the workers finish their epoch
            loss = F.l1_loss(model(noisy), clean)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total, batches, step = total + loss.item(), batches + 1, step + 1
            if step % 10 == 0 or step == 1:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
        print(f"epoch {epoch} mean loss {total / batches:.6f}", flush=True)
        epoch += 1

    held = list(SensorStream(4, 8).read(10_000))
    noisy, clean = (torch.stack(part) for part in zip(*held))
    with torch.no_grad():
        left = F.l1_loss(model(noisy), clean).item()
    print(f"unseen: {F.l1_loss(noisy, clean).item():.4f} before, {left:.4f} after")


if __name__ == "__main__":
    main()
