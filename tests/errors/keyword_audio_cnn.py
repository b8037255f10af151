"""Keyword spotting on short clips: log-mel like features -> small conv net.

usage: python keyword_audio_cnn.py --steps 160
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

WORDS = ["yes", "no", "up", "down", "left", "right"]


def make_clips(n, rng, sr=2000):
    """Every word is a pair of chirps with its own start and end pitch."""
    t = np.arange(sr) / sr
    X = np.zeros((n, sr), dtype=np.float32)
    y = rng.integers(0, len(WORDS), size=n)
    for i in range(n):
        k = y[i]
        f0 = 120 + 60 * k + rng.normal(0, 18)
        f1 = 500 - 50 * k + rng.normal(0, 18)
        onset = rng.uniform(0.05, 0.35)
        env = np.exp(-((t - onset - 0.25) ** 2) / 0.02)
        X[i] = env * np.sin(2 * np.pi * (f0 * t + 0.5 * (f1 - f0) * t**2))
    X += rng.normal(0, 0.35, X.shape)
    return torch.from_numpy(X), torch.from_numpy(y)


def features(wave):
    spec = torch.stft(
        wave,
        n_fft=128,
        hop_length=64,
        window=torch.hann_window(128),
        return_complex=True,
    ).abs()
    spec = F.avg_pool1d(spec[:, :64].transpose(1, 2), 2).transpose(1, 2)
    feats = torch.log(spec + 1e-3)
    return (feats - feats.mean((1, 2), keepdim=True)).unsqueeze(1)


class KWSNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )

        self.body = nn.Sequential(block(1, 12), block(12, 24), block(24, 32))
        self.drop = nn.Dropout(0.4)
        self.out = nn.Linear(32, n_classes)

    def forward(self, x):
        h = self.body(x).mean((2, 3))
        return self.out(self.drop(h))


def validate(model, loader, args):
    if args.fixed:
        model.eval()
    correct, total, loss_sum = 0, 0, 0.0
    with torch.no_grad():
        for x, y in loader:
            logits = model(x)
            loss_sum += F.cross_entropy(logits, y, reduction="sum").item()
            correct += (logits.argmax(1) == y).sum().item()
            total += len(y)
    return loss_sum / total, correct / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    xtr, ytr = make_clips(768, rng)
    xva, yva = make_clips(192, rng)
    train_loader = DataLoader(
        TensorDataset(features(xtr), ytr), batch_size=32, shuffle=True
    )
    val_loader = DataLoader(TensorDataset(features(xva), yva), batch_size=32)

    model = KWSNet(len(WORDS))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)

    best, step, epoch = 0.0, 0, 0
    while step < args.steps:
        model.train()
        running = 0.0
        n = 0
        for x, y in train_loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            running += loss.item()
            n += 1
            step += 1
            if step >= args.steps:
                break
        vl, va = validate(model, val_loader, args)
        best = max(best, va)
        epoch += 1
        print(
            f"epoch {epoch:2d} step {step:4d} train {running / n:.3f} val {vl:.3f} acc {va:.3f}"
        )
    print(f"best val acc {best:.3f}")

    if args.prove:
        before = {k: v.clone() for k, v in model.state_dict().items()}
        a = validate(model, val_loader, args)
        after = model.state_dict()
        moved = any(not torch.equal(before[k], after[k]) for k in before)
        b = validate(model, val_loader, args)
        print("fault shows:", "yes" if moved and a[0] != b[0] else "no")


if __name__ == "__main__":
    main()
