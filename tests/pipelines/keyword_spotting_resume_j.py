#!/usr/bin/env python
"""Keyword spotting on synthetic sounds.

The run is cut in two on purpose: the first half saves a checkpoint, the second half starts from it with new
objects, as the job on the cluster does when it is preempted.
"""
import argparse
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SR = 4000
WORDS = ["rising", "falling", "double", "steady", "noise"]


def synth(word, rng):
    t = np.arange(SR // 2) / SR
    f0 = rng.uniform(300, 700)
    if word == "rising":
        wave = np.sin(2 * np.pi * (f0 * t + 600 * t**2))
    elif word == "falling":
        wave = np.sin(2 * np.pi * ((f0 + 600) * t - 600 * t**2))
    elif word == "double":
        wave = np.sin(2 * np.pi * f0 * t) * ((t % 0.25) < 0.12)
    elif word == "steady":
        wave = np.sin(2 * np.pi * f0 * t)
    else:
        wave = 0.3 * rng.normal(size=t.shape)
    return (wave * rng.uniform(0.5, 1.0)).astype(np.float32)


class Keywords(Dataset):
    def __init__(self, n, seed, train):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(WORDS), n)
        self.waves = [synth(WORDS[k], rng) for k in self.labels]
        self.train = train
        if not train:  # fixed background noise for validation
            self.waves = [
                w + 0.15 * rng.normal(size=w.shape).astype(np.float32)
                for w in self.waves
            ]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        w = self.waves[i]
        if self.train:
            w = np.roll(w, np.random.randint(-200, 200))
            w = w + np.random.uniform(0.05, 0.25) * np.random.randn(*w.shape).astype(
                np.float32
            )
        return torch.from_numpy(np.asarray(w, dtype=np.float32)), int(self.labels[i])


def seed_worker(worker_id):
    s = torch.initial_seed() % 2**32
    np.random.seed(s)
    random.seed(s)


class LogSpec(nn.Module):
    def __init__(self, n_fft=128, hop=50):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, wave):
        s = torch.stft(
            wave, self.n_fft, self.hop, window=self.window, return_complex=True
        )
        x = torch.log(s.abs() ** 2 + 1e-4)
        return (
            (x - x.mean(dim=(1, 2), keepdim=True))
            / (x.std(dim=(1, 2), keepdim=True) + 1e-5)
        ).unsqueeze(1)


class SpecAugment(nn.Module):
    def forward(self, x):
        if not self.training:
            return x
        x = x.clone()
        f = torch.randint(0, x.size(2) - 6, (x.size(0),)).tolist()
        for i, lo in enumerate(f):
            x[i, :, lo : lo + 6] = 0
        return x


def build_model():
    def block(i, o):
        return [
            nn.Conv2d(i, o, 3, padding=1),
            nn.GroupNorm(4, o),
            nn.SiLU(),
            nn.MaxPool2d(2),
        ]

    return nn.Sequential(
        LogSpec(),
        SpecAugment(),
        *block(1, 12),
        *block(12, 24),
        *block(24, 32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32, len(WORDS)),
    )


def save(path, **parts):
    tmp = path + ".tmp"
    torch.save(parts, tmp)
    os.replace(tmp, path)  # never a half written file


def validate(model, loader):
    model.eval()
    n = loss = right = 0
    with torch.no_grad():
        for wave, label in loader:
            logits = model(wave)
            loss += F.cross_entropy(logits, label, reduction="sum").item()
            right += (logits.argmax(-1) == label).sum().item()
            n += len(label)
    return loss / n, right / n


def make_schedule(opt, iters):
    return torch.optim.lr_scheduler.SequentialLR(
        opt,
        [
            torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=15),
            torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=max(1, iters - 15)),
        ],
        milestones=[15],
    )


def run(args, train_set, val_set, ckpt, stop_after):
    """train from the checkpoint (if there is one) until epoch `stop_after`"""
    torch.manual_seed(args.seed)
    shuffle_gen = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(
        train_set,
        batch_size=40,
        shuffle=True,
        num_workers=args.workers,
        worker_init_fn=seed_worker,
        generator=shuffle_gen,
    )
    val_loader = DataLoader(val_set, batch_size=100)

    model = build_model()
    opt = torch.optim.NAdam(model.parameters(), lr=args.lr)
    sched = make_schedule(opt, len(train_loader) * args.epochs)
    start, history = 0, []
    if os.path.exists(ckpt):
        state = torch.load(ckpt, weights_only=False)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        start, history = state["epoch"], state["history"]
        print(f"resumed at epoch {start}, lr {opt.param_groups[0]['lr']:.5f}")
        vl, acc = validate(model, val_loader)
        assert (
            abs(vl - history[-1][0]) < 1e-4
        ), "checkpoint does not give the saved validation loss"
        torch.set_rng_state(state["rng"])
        shuffle_gen.set_state(state["shuffle"])

    for epoch in range(start, stop_after):
        model.train()
        total = 0.0
        for wave, label in train_loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(wave), label)
            loss.backward()
            torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            total += loss.item() * len(label)
        vl, acc = validate(model, val_loader)
        history.append((vl, acc))
        print(
            f"epoch {epoch}: train {total / len(train_set):.4f} val {vl:.4f} acc {acc:.3f}"
        )
        save(
            ckpt,
            model=model.state_dict(),
            opt=opt.state_dict(),
            sched=sched.state_dict(),
            rng=torch.get_rng_state(),
            shuffle=shuffle_gen.get_state(),
            epoch=epoch + 1,
            history=history,
        )
    return history


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--lr", type=float, default=6e-3)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--seed", type=int, default=21)
    args = ap.parse_args()
    train_set, val_set = Keywords(600, 1, train=True), Keywords(200, 2, train=False)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "last.pt")
        run(args, train_set, val_set, path, stop_after=max(1, args.epochs // 2))
        hist = run(args, train_set, val_set, path, stop_after=args.epochs)
    print("best accuracy", max(a for _, a in hist))
