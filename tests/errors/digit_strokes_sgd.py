"""Classify pen-stroke digits; SGD, warm-up, then cosine decay."""
import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR


@dataclass
class Cfg:
    steps: int = 200
    warmup: int = 30
    batch: int = 50
    peak_lr: float = 0.05
    points: int = 24
    classes: int = 10


def strokes(n, cfg, seed):
    base = torch.Generator().manual_seed(314)
    coef = torch.randn(cfg.classes, 2, 4, generator=base)
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, cfg.classes, (n,), generator=g)
    t = torch.linspace(0, 1, cfg.points)
    basis = torch.stack([torch.sin((k + 1) * math.pi * t) for k in range(4)])
    c = coef[y] + 0.6 * torch.randn(n, 2, 4, generator=g)
    xy = c @ basis
    rot = 0.3 * torch.randn(n, generator=g)
    m = torch.stack(
        [
            torch.stack([rot.cos(), -rot.sin()], 1),
            torch.stack([rot.sin(), rot.cos()], 1),
        ],
        1,
    )
    return (m @ xy + 0.2 * torch.randn(n, 2, cfg.points, generator=g)), y


class StrokeNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Conv1d(2, 24, 5, padding=2)
        self.fc1 = nn.Linear(24 * cfg.points // 2, 64)
        self.fc2 = nn.Linear(64, cfg.classes)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.conv(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def warmup_cosine(step, cfg):
    if step < cfg.warmup:
        return (step + 1) / cfg.warmup
    frac = (step - cfg.warmup) / max(1, cfg.steps - cfg.warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, frac)))


def make_schedule(opt, cfg, fixed):
    if fixed:
        return LambdaLR(opt, lambda s: warmup_cosine(s, cfg))
    return LambdaLR(opt, lambda s: cfg.peak_lr * warmup_cosine(s, cfg))


@torch.no_grad()
def test(model, x, y):
    out = model(x)
    return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Cfg.steps)
    ap.add_argument("--lr", type=float, default=Cfg.peak_lr)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    cfg = Cfg(steps=args.steps, peak_lr=args.lr)

    torch.manual_seed(17)
    x, y = strokes(3000, cfg, 1)
    xt, yt = strokes(1000, cfg, 2)
    model = StrokeNet(cfg)
    opt = torch.optim.SGD(
        model.parameters(), lr=cfg.peak_lr, momentum=0.9, nesterov=True
    )
    sched = make_schedule(opt, cfg, args.fixed)
    print(f"training {cfg.steps} steps, peak lr {cfg.peak_lr}")

    perm, at = torch.randperm(len(x)), 0
    rates = []
    for step in range(cfg.steps):
        if at + cfg.batch > len(x):
            perm, at = torch.randperm(len(x)), 0
        i = perm[at : at + cfg.batch]
        at += cfg.batch
        loss = F.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        rates.append(opt.param_groups[0]["lr"])
        opt.step()
        sched.step()
        if step % 30 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    tl, ta = test(model, xt, yt)
    print(f"test loss {tl:.4f}  accuracy {ta:.4f}")

    if args.prove:
        wanted = [cfg.peak_lr * warmup_cosine(s, cfg) for s in range(cfg.steps)]
        ratio = max(rates) / max(wanted)
        print(
            f"largest rate used {max(rates):.5f}, configured {max(wanted):.5f}, ratio {ratio:.4f}"
        )
        off = max(abs(a - b) for a, b in zip(rates, wanted))
        print("fault shows:", "yes" if off > 1e-6 else "no")


if __name__ == "__main__":
    main()
