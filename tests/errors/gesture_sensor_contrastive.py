"""SimCLR-style pre-training on wrist-sensor windows, followed by a linear probe.

Accelerometer windows (3 axes, 64 samples). Everything sits in memory, windows are augmented
when they are fetched.
"""
import argparse
from typing import List

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

N_GESTURES = 5


def record_session(n: int, seed: int):
    """Made-up recordings: circle, wave, knock, raise, rest."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 2, 64)
    kinds = rng.integers(0, N_GESTURES, n)
    out = np.zeros((n, 3, 64), dtype=np.float32)
    for i, k in enumerate(kinds):
        f, ph, amp = rng.normal(1.5, 0.15), rng.uniform(0, 6.28), rng.uniform(0.8, 1.2)
        w = 2 * np.pi * f * t + ph
        if k == 0:
            sig = np.stack([np.sin(w), np.cos(w), 0 * t])
        elif k == 1:
            sig = np.stack([np.sin(2 * w), 0.2 * np.sin(w), 0.1 * np.cos(w)])
        elif k == 2:
            sig = np.stack(
                [0 * t, 0.2 * np.sin(w), np.maximum(np.sin(2 * w), 0.5) * 2 - 1.5]
            )
        elif k == 3:
            sig = np.stack([0 * t, np.tanh(3 * np.sin(w)), 0.5 * np.sin(w)])
        else:
            sig = 0.2 * rng.normal(size=(3, 64))
        turn = np.linalg.qr(np.eye(3) + 0.5 * rng.normal(size=(3, 3)))[0]
        out[i] = amp * turn @ sig + 0.7 * rng.normal(size=(3, 64))
    return torch.from_numpy(out), torch.from_numpy(kinds)


class Augment:
    """Gain, jitter and a short drop-out of one axis."""

    def __init__(self, generator: torch.Generator, jitter=0.15, gain=0.2):
        self.g, self.jitter, self.gain = generator, jitter, gain

    def __call__(self, window: Tensor) -> Tensor:
        window.mul_(1 + self.gain * (2 * torch.rand(3, 1, generator=self.g) - 1))
        window.add_(self.jitter * torch.randn(window.shape, generator=self.g))
        axis = int(torch.randint(0, 3, (1,), generator=self.g))
        start = int(torch.randint(0, 56, (1,), generator=self.g))
        window[axis, start : start + 8] = 0.0
        return window


class PairDataset(Dataset):
    """Two augmented views of each window. The windows are kept as one tensor in memory."""

    def __init__(self, windows: Tensor, augment: Augment, copy_first: bool = False):
        self.windows, self.augment, self.copy_first = windows, augment, copy_first

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, i):
        window = self.windows[i]
        if self.copy_first:
            window = window.clone()
        second = self.augment(window.clone())
        first = self.augment(window)
        return first, second


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(3, width, 7, stride=2, padding=3),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.project = nn.Sequential(
            nn.Linear(2 * width, 48), nn.ReLU(), nn.Linear(48, 24)
        )

    def forward(self, x):
        return F.normalize(self.project(self.net(x)), dim=1)


def nt_xent(a: Tensor, b: Tensor, temperature=0.2) -> Tensor:
    z = torch.cat([a, b])
    sim = z @ z.T / temperature
    sim.fill_diagonal_(-1e9)
    n = len(a)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


def linear_probe(encoder: Encoder, xs: List[Tensor], ys: List[Tensor]) -> float:
    encoder.eval()
    with torch.no_grad():
        train, test = (encoder.net(x) for x in xs)
    encoder.train()
    mean, std = train.mean(0), train.std(0) + 1e-5
    train, test = (train - mean) / std, (test - mean) / std
    onehot = F.one_hot(ys[0], N_GESTURES).float()
    ridge = train.T @ train + 5.0 * torch.eye(train.size(1))
    w = torch.linalg.solve(ridge, train.T @ (onehot - onehot.mean(0)))
    return ((test @ w + onehot.mean(0)).argmax(1) == ys[1]).float().mean().item()


def pretrain(args):
    torch.manual_seed(args.seed)
    windows, _ = record_session(640, 1)
    recorded = windows.clone() if args.prove else None
    labelled, test = record_session(60, 2), record_session(400, 3)
    data = PairDataset(windows, Augment(torch.Generator().manual_seed(args.seed)))
    if args.fixed:
        data.copy_first = True
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)

    encoder = Encoder()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3, weight_decay=1e-5)
    step, epoch = 0, 0
    while step < args.steps:
        losses = []
        for first, second in loader:
            loss = nt_xent(encoder(first), encoder(second))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
            if step >= args.steps:
                break
        epoch += 1
        if epoch % 3 == 0 or step >= args.steps:
            acc = linear_probe(encoder, [labelled[0], test[0]], [labelled[1], test[1]])
            print(
                f"epoch {epoch:2d} step {step:4d} loss {np.mean(losses):.4f} probe accuracy {acc:.3f}"
            )
    return windows, recorded


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    windows, recorded = pretrain(args)
    if args.prove:
        drift = (windows - recorded).abs().mean().item()
        silent = (windows == 0).float().mean().item()
        print(
            f"stored windows differ from the recordings by {drift:.4f} on average, {silent:.1%} of the samples are 0"
        )
        print("fault shows:", "yes" if drift > 0 else "no")
