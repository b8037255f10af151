"""
Bird calls: species (classification), call present per frame (tagging), pitch (regression)
from log spectrograms computed with torch.stft.

Multi-task with learned uncertainty weights, bf16 autocast, gradient accumulation where the
last group of an epoch may be smaller, loader workers with their own seeds.
"""
import argparse
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, HOP, NFFT = 4000, 0.8, 80, 160
SAMPLES = int(RATE * SECONDS)
FRAMES = SAMPLES // HOP
SPECIES = ["up chirp", "down chirp", "trill", "double note", "flat whistle"]


def synth_call(rng):
    """One clip with its labels."""
    t = np.arange(SAMPLES) / RATE
    label = int(rng.integers(len(SPECIES)))
    base = rng.uniform(500, 1300)
    start, dur = rng.uniform(0.05, 0.35), rng.uniform(0.25, 0.4)
    u = np.clip((t - start) / dur, 0, 1)
    on = (t >= start) & (t < start + dur)
    if label == 0:
        f = base * (1 + 0.4 * (u - 0.5))
    elif label == 1:
        f = base * (1 - 0.4 * (u - 0.5))
    elif label == 2:
        f = base * (1 + 0.15 * np.sin(2 * np.pi * 14 * u * dur))
    elif label == 3:
        f = np.full_like(t, base)
        on = on & ((u < 0.4) | (u > 0.6))
    else:
        f = np.full_like(t, base)
    wave = np.sin(2 * np.pi * np.cumsum(f) / RATE) * on * rng.uniform(0.5, 1.0)
    wave = wave + rng.normal(0, 0.15, SAMPLES)
    active = on.reshape(FRAMES, HOP).mean(axis=1) > 0.5
    return (
        wave.astype(np.float32),
        label,
        active.astype(np.float32),
        np.float32(math.log2(base / 800)),
    )


class BirdDataset(Dataset):
    def __init__(self, n, seed, augment):
        rng = np.random.default_rng(seed)
        self.items = [synth_call(rng) for _ in range(n)]
        self.augment = augment

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        wave, label, active, pitch = self.items[i]
        if self.augment:
            wave = wave * np.float32(np.random.uniform(0.7, 1.3))
            wave = wave + np.random.normal(0, random.uniform(0, 0.05), SAMPLES).astype(
                np.float32
            )
        return torch.from_numpy(wave), label, torch.from_numpy(active), pitch


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


class LogSpec(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(NFFT))

    def forward(self, wave):
        s = torch.stft(
            wave, NFFT, HOP, window=self.window, center=True, return_complex=True
        )
        s = torch.log1p(10 * s.abs())[:, :, :FRAMES]
        return s.unsqueeze(1)


class BirdNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.spec = LogSpec()
        self.norm = nn.BatchNorm2d(1)
        self.conv = nn.Sequential(
            nn.Conv2d(1, c, 5, stride=(2, 1), padding=2),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, c, 3, stride=(2, 1), padding=1),
            nn.BatchNorm2d(c),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(c * 21, 32, batch_first=True, bidirectional=True)
        self.species = nn.Linear(64, len(SPECIES))
        self.frames = nn.Linear(64, 1)
        self.pitch = nn.Linear(64, 1)

    def forward(self, wave):
        with torch.autocast("cpu", enabled=False):
            x = self.norm(self.spec(wave))
        x = self.conv(x).flatten(1, 2).transpose(1, 2)
        h, _ = self.rnn(x)
        pooled = h.mean(dim=1)
        return (
            self.species(pooled).float(),
            self.frames(h).squeeze(-1).float(),
            self.pitch(pooled).squeeze(-1).float(),
        )


class UncertaintyWeights(nn.Module):
    """Kendall et al.: exp(-s) * loss + s"""

    def __init__(self, n):
        super().__init__()
        self.s = nn.Parameter(torch.zeros(n))

    def forward(self, losses):
        losses = torch.stack(losses)
        return (torch.exp(-self.s) * losses + self.s).sum()


def task_losses(out, label, active, pitch):
    return [
        F.cross_entropy(out[0], label),
        F.binary_cross_entropy_with_logits(out[1], active),
        F.mse_loss(out[2], pitch),
    ]


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    acc = frame = err = n = 0.0
    for wave, label, active, pitch in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            s, f, p = model(wave)
        acc += (s.argmax(1) == label).sum().item()
        frame += ((f > 0).float() == active).float().mean(1).sum().item()
        err += (p - pitch).abs().sum().item()
        n += len(label)
    return acc / n, frame / n, err / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--accum", type=int, default=3)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--seed", type=int, default=13)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    random.seed(args.seed)

    train_loader = DataLoader(
        BirdDataset(640, 1, augment=True),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        worker_init_fn=seed_worker,
        generator=torch.Generator().manual_seed(args.seed),
    )
    valid_loader = DataLoader(BirdDataset(160, 2, augment=False), batch_size=80)

    model, weighting = BirdNet(), UncertaintyWeights(3)
    optimizer = torch.optim.AdamW(
        [
            {"params": model.parameters(), "lr": 3e-3, "weight_decay": 1e-2},
            {"params": weighting.parameters(), "lr": 1e-2, "weight_decay": 0.0},
        ]
    )
    n_batches = len(train_loader)
    updates = math.ceil(n_batches / args.accum) * args.epochs
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=[3e-3, 1e-2], total_steps=updates
    )
    print(f"{n_batches} batches per epoch, {updates} updates in all")

    for epoch in range(args.epochs):
        t0 = time.time()
        model.train()
        sums, seen = torch.zeros(3), 0
        for i, (wave, label, active, pitch) in enumerate(train_loader):
            group_start = i - i % args.accum
            group = min(args.accum, n_batches - group_start)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(wave)
            losses = task_losses(out, label, active, pitch)
            (weighting(losses) / group).backward()
            if (i + 1) % args.accum == 0 or i + 1 == n_batches:
                nn.utils.clip_grad_norm_(model.parameters(), 3.0)
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
            sums += torch.stack(losses).detach() * len(label)
            seen += len(label)
        acc, frame, err = evaluate(model, valid_loader)
        print(
            f"epoch {epoch} losses {[round(v, 3) for v in (sums / seen).tolist()]} weights "
            f"{[round(v, 2) for v in torch.exp(-weighting.s).tolist()]} species {acc:.3f} frames {frame:.3f} "
            f"pitch error {err:.3f} oct ({time.time() - t0:.1f}s)"
        )


if __name__ == "__main__":
    main()
