"""Contrastive pre-training on log-mel patches, followed by a linear probe.

Unlabelled clips are augmented twice; NT-Xent pulls the two views together.
"""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

N_MELS, FRAMES, CLASSES = 32, 40, 6


def synth_clips(n, rng):
    """Six kinds of sounds: rising, falling, steady, vibrato, clicks, two tones."""
    t = np.arange(FRAMES)
    mel = np.arange(N_MELS)[:, None]
    clips, labels = [], rng.integers(0, CLASSES, n)
    for k in labels:
        f0 = rng.uniform(8, 24)
        if k == 0:
            f = f0 - 6 + 12 * t / FRAMES
        elif k == 1:
            f = f0 + 6 - 12 * t / FRAMES
        elif k == 3:
            f = f0 + 3 * np.sin(2 * np.pi * t / rng.uniform(8, 12))
        else:
            f = np.full(FRAMES, f0)
        spec = np.exp(-((mel - f) ** 2) / 3.0)
        if k == 4:
            spec = np.exp(-((mel - f0) ** 2) / 80.0) * ((t + rng.integers(8)) % 8 < 2)
        if k == 5:
            spec = spec + np.exp(-((mel - (f0 + 7) % N_MELS) ** 2) / 3.0)
        clips.append(2 * spec + rng.normal(0, 0.35, spec.shape))
    return torch.tensor(np.stack(clips), dtype=torch.float32), torch.tensor(labels)


class TwoViews(Dataset):
    def __init__(self, clips):
        self.clips = clips

    def __len__(self):
        return len(self.clips)

    def augment(self, x):
        x = torch.roll(x, int(torch.randint(-10, 11, ())), dims=1)
        x = x * (0.7 + 0.6 * torch.rand(()))
        lo = int(torch.randint(0, N_MELS - 4, ()))
        x = x.clone()
        x[lo : lo + 4] = 0.0
        start = int(torch.randint(0, FRAMES - 6, ()))
        x[:, start : start + 6] = 0.0
        return x + 0.1 * torch.randn_like(x)

    def __getitem__(self, i):
        x = self.clips[i]
        return self.augment(x), self.augment(x)


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(),
            )

        self.net = nn.Sequential(block(1, 16), block(16, 32), block(32, dim))

    def forward(self, x):
        return self.net(x.unsqueeze(1)).mean(dim=(2, 3))


def nt_xent(z1, z2, temperature=0.2):
    n = len(z1)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    target = torch.arange(2 * n).roll(n)
    return F.cross_entropy(sim, target)


class LARS(torch.optim.Optimizer):
    """SGD with momentum and a layer-wise trust ratio; 1-d parameters are plain SGD."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=1e-4, eta=0.02):
        super().__init__(
            params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, eta=eta)
        )

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                d = p.grad
                if p.ndim > 1:
                    d = d.add(p, alpha=group["weight_decay"])
                    p_norm, d_norm = p.norm(), d.norm()
                    if p_norm > 0 and d_norm > 0:
                        d = d * (group["eta"] * p_norm / d_norm)
                buf = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(d)
                p.add_(buf, alpha=-group["lr"])
        return loss


class WarmupCosine:
    def __init__(self, optimizer, base_lr, warmup, total):
        self.optimizer, self.base_lr, self.warmup, self.total = (
            optimizer,
            base_lr,
            warmup,
            total,
        )
        self.t = 0
        self._apply()

    def _apply(self):
        if self.t < self.warmup:
            lr = self.base_lr * (self.t + 1) / self.warmup
        else:
            frac = (self.t - self.warmup) / max(1, self.total - self.warmup)
            lr = self.base_lr * 0.5 * (1 + math.cos(math.pi * min(1.0, frac)))
        for g in self.optimizer.param_groups:
            g["lr"] = lr
        return lr

    def step(self):
        self.t += 1
        return self._apply()


@torch.no_grad()
def extract(encoder, clips, batch=256):
    encoder.eval()
    return torch.cat([encoder(c) for c in clips.split(batch)])


def linear_probe(encoder, train, test):
    """Logistic regression by L-BFGS on frozen features."""
    xtr, xte = extract(encoder, train[0]), extract(encoder, test[0])
    mean, std = xtr.mean(0), xtr.std(0) + 1e-6
    xtr, xte = (xtr - mean) / std, (xte - mean) / std
    probe = nn.Linear(xtr.shape[1], CLASSES)
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    lbfgs = torch.optim.LBFGS(probe.parameters(), lr=0.5, max_iter=30)

    def closure():
        lbfgs.zero_grad()
        loss = F.cross_entropy(probe(xtr), train[1]) + 1e-3 * probe.weight.pow(2).sum()
        loss.backward()
        return loss

    lbfgs.step(closure)
    with torch.no_grad():
        return (probe(xte).argmax(1) == test[1]).float().mean().item()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=64)
    args = ap.parse_args()

    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    unlabelled, _ = synth_clips(1280, rng)
    probe_train, probe_test = synth_clips(200, rng), synth_clips(400, rng)

    encoder = Encoder()
    projector = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    params = list(encoder.parameters()) + list(projector.parameters())
    optimizer = LARS(params, lr=0.0)
    schedule = WarmupCosine(
        optimizer, base_lr=0.4, warmup=max(1, args.steps // 10), total=args.steps
    )
    loader = DataLoader(
        TwoViews(unlabelled), batch_size=args.batch_size, shuffle=True, drop_last=True
    )

    print(
        f"probe on random features {linear_probe(encoder, probe_train, probe_test):.3f}; "
        f"chance loss {math.log(2 * args.batch_size - 1):.3f}"
    )
    step = 0
    while step < args.steps:
        encoder.train()
        projector.train()
        for v1, v2 in loader:
            h = encoder(torch.cat([v1, v2]))
            z1, z2 = projector(h).chunk(2)
            loss = nt_xent(z1, z2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lr = schedule.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} nt-xent {loss.item():.4f} next lr {lr:.3f}")
            if step == args.steps:
                break
    print(
        f"probe after pre-training {linear_probe(encoder, probe_train, probe_test):.3f}"
    )
