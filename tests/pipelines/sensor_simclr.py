"""Self-supervised pre-training (NT-Xent) on accelerometer windows, then a linear probe."""
import argparse
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Options:
    steps: int = 150
    batch_size: int = 96
    temperature: float = 0.2
    lr: float = 2e-3
    probe_epochs: int = 30
    seed: int = 31


def windows(n, rng):
    """3 axes x 64 samples; activity = rest, walk, run, stairs, bike"""
    label = rng.integers(0, 5, n)
    t = np.arange(64) / 32.0
    x = np.zeros((n, 3, 64), dtype=np.float32)
    base = [0.0, 1.8, 2.9, 1.4, 2.2]
    amp = [
        (0.02, 0.02, 0.02),
        (0.4, 0.3, 0.8),
        (0.9, 0.5, 1.6),
        (0.5, 0.6, 0.5),
        (0.6, 0.1, 0.2),
    ]
    for i, c in enumerate(label):
        f = base[c] * rng.uniform(0.9, 1.1)
        for a in range(3):
            ph = rng.uniform(0, 2 * np.pi)
            x[i, a] = amp[c][a] * (
                np.sin(2 * np.pi * f * t + ph) + 0.4 * np.sin(4 * np.pi * f * t + ph)
            )
        x[i] += rng.normal(0, 0.15, (3, 64)) + np.array([[0], [0], [1.0]])
    return torch.from_numpy(x), torch.from_numpy(label)


def augment(x):
    n = x.size(0)
    x = x * (1 + 0.15 * torch.randn(n, 1, 1))  # gain
    x = x + 0.05 * torch.randn_like(x)  # noise
    shift = torch.randint(0, 64, (n, 1, 1))
    idx = (torch.arange(64).view(1, 1, -1) + shift) % 64  # roll
    x = x.gather(2, idx.expand_as(x))
    start = torch.randint(0, 56, (n, 1, 1))
    pos = torch.arange(64).view(1, 1, -1)
    hidden = (pos >= start) & (pos < start + 8)  # cut-out
    return x.masked_fill(hidden, 0.0)


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(3, 32, 7, padding=3),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(32, dim, 5, padding=2),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(dim, dim, 3, padding=1),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.net(x)


def nt_xent(z1, z2, tau):
    n = z1.size(0)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.t() / tau
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(0, n)])
    return F.cross_entropy(sim, target)


def alignment_uniformity(z1, z2):
    z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    align = (z1 - z2).pow(2).sum(1).mean()
    uniform = torch.pdist(z1).pow(2).mul(-2).exp().mean().log()
    return align.item(), uniform.item()


def pretrain(encoder, projector, x, opts):
    params = list(encoder.parameters()) + list(projector.parameters())
    optimizer = torch.optim.AdamW(params, lr=opts.lr, weight_decay=1e-4)
    warmup = max(1, min(15, opts.steps // 4))
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=warmup),
            torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, T_max=max(1, opts.steps - warmup)
            ),
        ],
        milestones=[warmup],
    )
    encoder.train()
    projector.train()
    step, history = 0, []
    while step < opts.steps:
        perm = torch.randperm(len(x))
        for b in range(
            len(x) // opts.batch_size
        ):  # incomplete batch not used, fewer negatives
            if step == opts.steps:
                break
            xb = x[perm[b * opts.batch_size : (b + 1) * opts.batch_size]]
            z1, z2 = projector(encoder(augment(xb))), projector(encoder(augment(xb)))
            loss = nt_xent(z1, z2, opts.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            history.append(loss.item())
            if step % 30 == 0 or step == opts.steps:
                a, u = alignment_uniformity(z1.detach(), z2.detach())
                print(
                    f"pretrain {step}/{opts.steps} loss {np.mean(history[-30:]):.3f} align {a:.3f} uniform {u:.3f}"
                )


@torch.no_grad()
def embed(encoder, x):
    encoder.eval()
    return torch.cat([encoder(part) for part in x.split(256)])


def linear_probe(f_train, y_train, f_test, y_test, opts):
    """features are fixed, only one linear layer is fitted"""
    mu, sd = f_train.mean(0), f_train.std(0) + 1e-6
    f_train, f_test = (f_train - mu) / sd, (f_test - mu) / sd
    clf = nn.Linear(f_train.size(1), 5)
    optimizer = torch.optim.SGD(
        clf.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3
    )
    for _ in range(opts.probe_epochs):
        for idx in torch.randperm(len(f_train)).split(50):
            loss = F.cross_entropy(clf(f_train[idx]), y_train[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return (clf(f_test).argmax(1) == y_test).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Options.steps)
    ap.add_argument("--seed", type=int, default=Options.seed)
    a = ap.parse_args()
    opts = Options(steps=a.steps, seed=a.seed)
    random.seed(opts.seed)
    np.random.seed(opts.seed)
    torch.manual_seed(opts.seed)
    rng = np.random.default_rng(opts.seed)
    x_un, _ = windows(1500, rng)  # labels are thrown away
    x_lab, y_lab = windows(150, rng)
    x_test, y_test = windows(500, rng)

    encoder = Encoder()
    projector = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    before = linear_probe(
        embed(encoder, x_lab), y_lab, embed(encoder, x_test), y_test, opts
    )
    pretrain(encoder, projector, x_un, opts)
    after = linear_probe(
        embed(encoder, x_lab), y_lab, embed(encoder, x_test), y_test, opts
    )
    print(
        f"linear probe accuracy: random encoder {before:.3f}, pre-trained {after:.3f}"
    )


if __name__ == "__main__":
    main()
