"""Keyword spotting on short synthetic audio clips.

Log-mel-like features are computed with torch.stft, then a small depthwise
separable CNN classifies the clip into one of eight "words".
"""
import argparse
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SAMPLE_RATE = 4000
CLIP_LEN = 2000
N_WORDS = 8


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_clips(n, rng):
    """each word = a pair of formants with a chirp on the second one"""
    t = np.arange(CLIP_LEN) / SAMPLE_RATE
    clips = np.zeros((n, CLIP_LEN), dtype=np.float32)
    words = rng.integers(0, N_WORDS, size=n)
    for i, w in enumerate(words):
        f1 = 220 + 60 * w + rng.normal(0, 12)
        f2 = 900 + 90 * ((w * 3) % N_WORDS) + rng.normal(0, 20)
        chirp = 150 * (1 if w % 2 else -1)
        start = rng.uniform(0.0, 0.15)
        env = np.exp(-((t - 0.22 - start) ** 2) / 0.012)
        wave = np.sin(2 * math.pi * f1 * t) + 0.7 * np.sin(
            2 * math.pi * (f2 * t + chirp * t * t)
        )
        clips[i] = env * wave + rng.normal(0, 0.25, size=CLIP_LEN)
    return torch.from_numpy(clips), torch.from_numpy(words).long()


def spectrogram(clips):
    win = torch.hann_window(128)
    spec = torch.stft(clips, n_fft=128, hop_length=64, window=win, return_complex=True)
    logspec = torch.log1p(spec.abs() ** 2)
    return logspec.unsqueeze(1)  # (N, 1, 65, frames)


class DSBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.dw = nn.Conv2d(
            cin, cin, 3, stride=stride, padding=1, groups=cin, bias=False
        )
        self.pw = nn.Conv2d(cin, cout, 1, bias=False)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.relu(self.norm(self.pw(self.dw(x))))


class KWSNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(
            DSBlock(width, width),
            DSBlock(width, width * 2, stride=2),
            DSBlock(width * 2, width * 2),
        )
        self.fc = nn.Linear(width * 2, N_WORDS)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = self.blocks(x)
        x = x.mean(dim=(2, 3))
        return self.fc(x)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    good = total = 0
    for x, y in loader:
        good += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return good / total


def train(model, train_loader, val_loader, args):
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, nesterov=True
    )
    step, epoch = 0, 0
    deviation = 0.0
    while step < args.steps:
        optimizer.zero_grad()
        running = []
        for x, y in train_loader:
            if step >= args.steps:
                break
            if args.fixed:
                optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if args.prove and step == 5:
                own = torch.autograd.grad(
                    F.cross_entropy(model(x), y), list(model.parameters())
                )
                diff = sum(
                    (p.grad - g).pow(2).sum() for p, g in zip(model.parameters(), own)
                ).sqrt()
                deviation = (diff / sum(g.pow(2).sum() for g in own).sqrt()).item()
            optimizer.step()
            running.append(loss.item())
            step += 1
        epoch += 1
        acc = evaluate(model, val_loader)
        print(
            f"epoch {epoch:2d}  step {step:4d}  loss {np.mean(running):.4f}  val acc {acc:.3f}"
        )
    return deviation


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=0.01)
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    seed_all(args.seed)

    rng = np.random.default_rng(args.seed)
    clips, words = make_clips(800, rng)
    feats = spectrogram(clips)
    mean, std = feats[:640].mean(), feats[:640].std()
    feats = (feats - mean) / std
    train_loader = DataLoader(
        TensorDataset(feats[:640], words[:640]),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
    )
    val_loader = DataLoader(TensorDataset(feats[640:], words[640:]), batch_size=80)

    model = KWSNet()
    print("parameters:", sum(p.numel() for p in model.parameters()))
    deviation = train(model, train_loader, val_loader, args)
    if args.prove:
        print("fault shows:", "yes" if deviation > 0.05 else "no")


if __name__ == "__main__":
    main()
