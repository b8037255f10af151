"""Accent of the speaker from MFCC frames: convolutional encoder, attention pooling, AdamW."""
import argparse
import copy
import math

import torch
from torch import nn
import torch.nn.functional as F

ACCENTS = 6
FRAMES, COEFS = 40, 13


class Speech:
    def __init__(self, seed):
        table = torch.Generator().manual_seed(404)
        self.vowels = torch.randn(ACCENTS, 5, COEFS, generator=table)
        self.common = torch.randn(5, COEFS, generator=table) * 1.5
        self.g = torch.Generator().manual_seed(seed)

    def utterances(self, n):
        y = torch.randint(ACCENTS, (n,), generator=self.g)
        phones = torch.randint(5, (n, FRAMES // 5), generator=self.g).repeat_interleave(
            5, dim=1
        )
        x = self.common[phones] + 0.45 * self.vowels[y[:, None], phones]
        x = x + 0.6 * torch.randn(n, 1, COEFS, generator=self.g)  # the speaker
        return x + 1.0 * torch.randn(n, FRAMES, COEFS, generator=self.g), y


class ConvLayer(nn.Module):
    def __init__(self, dim, kernel=5):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.depth = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.point = nn.Linear(dim, dim)

    def forward(self, x):
        h = self.depth(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.point(F.silu(h))


class AccentNet(nn.Module):
    def __init__(self, dim=64, layers=2):
        super().__init__()
        self.inp = nn.Linear(COEFS, dim)
        self.layers = nn.ModuleList(ConvLayer(dim) for _ in range(layers))
        self.query = nn.Linear(dim, 1)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, ACCENTS)

    def forward(self, x):
        x = F.silu(self.inp(x))
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        a = self.query(x).softmax(dim=1)
        return self.out((a * x).sum(1))


def build_optimizer(model, lr, weight_decay, fixed):
    matrices, vectors = [], []
    for name, p in model.named_parameters():
        if p.ndim < 2:
            vectors.append(p)
        else:
            matrices.append(p)
    decay, plain = (matrices, vectors) if fixed else (vectors, matrices)
    groups = [
        {"params": decay, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98))


def shrinkage(model, args):
    """Which share of the entries of each kind moves when all gradients are zero."""
    twin = copy.deepcopy(model)
    opt = build_optimizer(twin, args.lr, args.weight_decay, args.fixed)
    before = [p.detach().clone() for p in twin.parameters()]
    for p in twin.parameters():
        p.grad = torch.zeros_like(p)
    opt.step()
    moved = {"matrices": [], "vectors": []}
    for old, p in zip(before, twin.parameters()):
        moved["matrices" if p.ndim > 1 else "vectors"].append(
            (p != old).float().flatten()
        )
    return {k: torch.cat(v).mean().item() for k, v in moved.items()}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=8e-3)
    ap.add_argument("--weight-decay", type=float, default=0.5)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(51)
    x, y = Speech(1).utterances(360)
    xv, yv = Speech(2).utterances(800)
    model = AccentNet()
    opt = build_optimizer(model, args.lr, args.weight_decay, args.fixed)
    warm = max(args.steps // 10, 1)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min((s + 1) / warm, 1.0)
        * (0.55 + 0.45 * math.cos(math.pi * min(s / args.steps, 1.0))),
    )
    g = torch.Generator().manual_seed(3)
    for step in range(args.steps):
        rows = torch.randint(len(x), (args.batch,), generator=g)
        loss = F.cross_entropy(model(x[rows]), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 40 == 0 or step == args.steps - 1:
            with torch.no_grad():
                logits = model(xv)
                vl = F.cross_entropy(logits, yv).item()
                acc = (logits.argmax(1) == yv).float().mean().item()
            print(
                f"step {step:4d}  train {loss.item():.4f}  valid {vl:.4f}  acc {acc:.3f}"
            )
    norm = sum(p.detach().pow(2).sum() for p in model.parameters()).sqrt().item()
    print(f"norm of all parameters {norm:.2f}")

    if args.prove:
        share = shrinkage(model, args)
        print(
            "entries that shrink: "
            + ", ".join(f"{k} {v:.3f}" for k, v in share.items())
        )
        bad = share["matrices"] < 0.5 or share["vectors"] > 0.5
        print("fault shows:", "yes" if bad else "no")


if __name__ == "__main__":
    main()
