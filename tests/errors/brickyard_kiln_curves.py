"""Brick strength from the firing curve of the kiln.

A firing is 32 temperatures at four places of the kiln car.  The mixer network works on
patches of the curve; training runs in half precision with a gradient scaler.
"""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

PLACES, HOURS, PATCH = 4, 32, 4


def fire(rng):
    t = np.linspace(0, 1, HOURS)
    peak, soak, rise = (
        rng.uniform(880, 1080),
        rng.uniform(0.1, 0.3),
        rng.uniform(0.3, 0.5),
    )
    curve = np.interp(t, [0, rise, rise + soak, 1], [40, peak, peak, 120])
    curves = []
    for place in range(PLACES):
        lag = rng.normal(0, 0.02)
        shifted = np.interp(t - lag, t, curve) + rng.normal(0, 18) - 12 * place
        curves.append(shifted + rng.normal(0, 12, HOURS))
    curves = np.stack(curves, 1)
    heat = np.clip(curves - 800, 0, None).mean() / 60
    shock = np.abs(np.diff(curves, axis=0)).max() / 100
    spread = curves.std(axis=1).mean() / 25
    strength = 18 + 9 * np.tanh(heat - 0.9) - 1.8 * shock - 2.0 * spread
    return curves, strength + rng.normal(0, 0.6)


def load_firings(count, seed):
    rng = np.random.default_rng(seed)
    curves, strength = zip(*[fire(rng) for _ in range(count)])
    return (
        torch.tensor(np.stack(curves), dtype=torch.float32),
        torch.tensor(np.array(strength), dtype=torch.float32),
    )


class MixerLayer(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.ln_token = nn.LayerNorm(width)
        self.token = nn.Sequential(
            nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens)
        )
        self.ln_channel = nn.LayerNorm(width)
        self.channel = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        x = x + self.token(self.ln_token(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel(self.ln_channel(x))


class CurveMixer(nn.Module):
    def __init__(self, width=40, depth=2):
        super().__init__()
        tokens = HOURS // PATCH
        self.embed = nn.Linear(PLACES * PATCH, width)
        self.layers = nn.Sequential(*[MixerLayer(tokens, width) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, curves):
        patches = curves.unflatten(1, (HOURS // PATCH, PATCH)).flatten(2)
        return self.head(self.layers(self.embed(patches)).mean(1)).squeeze(-1)


class HalfPrecisionStep:
    """One update under autocast: scale, clip, step."""

    def __init__(self, model, optimizer, args):
        self.model, self.optimizer, self.args = model, optimizer, args
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13)

    def __call__(self, curves, strength):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16):
            guess = self.model(curves)
        loss = F.huber_loss(guess.float(), strength)
        self.scaler.scale(loss).backward()
        if self.args.fixed:
            self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


class StepAudit:
    """Length of the gradient the optimizer worked with, next to a full precision one."""

    def __init__(self, step):
        self.step = step
        self.ratios = []

    def before(self, curves, strength):
        params = list(self.step.model.parameters())
        loss = F.huber_loss(self.step.model(curves), strength)
        norm = torch.stack([g.norm() for g in torch.autograd.grad(loss, params)]).norm()
        self.wanted = min(norm.item(), self.step.args.clip)

    def after(self):
        grads = [p.grad.norm() for p in self.step.model.parameters()]
        used = torch.stack(grads).norm().item()
        if np.isfinite(used):
            self.ratios.append(used / max(self.wanted, 1e-12))

    def report(self):
        middle = float(np.median(self.ratios))
        print(f"gradient length, used over wanted: median {middle:.5f}")
        print("fault shows:", "yes" if middle < 0.5 else "no")


@torch.no_grad()
def validate(model, loader, scale):
    model.eval()
    gaps, losses = [], []
    for curves, strength in loader:
        guess = model(curves)
        gaps.append((guess - strength).abs() * scale)
        losses.append(F.huber_loss(guess, strength, reduction="none"))
    model.train()
    return torch.cat(losses).mean().item(), torch.cat(gaps).mean().item()


def prepare(args):
    curves, strength = load_firings(1100, seed=70)
    split = torch.Generator().manual_seed(71)
    train, valid = random_split(range(len(curves)), [900, 200], generator=split)
    train_rows, valid_rows = torch.tensor(list(train)), torch.tensor(list(valid))
    mean, std = curves[train_rows].mean((0, 1)), curves[train_rows].std((0, 1))
    centre, scale = strength[train_rows].mean(), strength[train_rows].std()
    curves, strength = (curves - mean) / std, (strength - centre) / scale
    shuffle = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(
        TensorDataset(curves[train_rows], strength[train_rows]),
        args.batch,
        shuffle=True,
        generator=shuffle,
    )
    valid_loader = DataLoader(
        TensorDataset(curves[valid_rows], strength[valid_rows]), 100
    )
    return train_loader, valid_loader, scale.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=72)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train_loader, valid_loader, scale = prepare(args)
    model = CurveMixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    step = HalfPrecisionStep(model, optimizer, args)
    audit = StepAudit(step) if args.prove else None
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(1, args.epochs + 1):
            total = 0.0
            for curves, strength in train_loader:
                if audit:
                    audit.before(curves, strength)
                total += step(curves, strength) * len(curves)
                if audit:
                    audit.after()
            scheduler.step()
            loss, gap = validate(model, valid_loader, scale)
            if loss < best:
                best = loss
                torch.save(model.state_dict(), os.path.join(folder, "mixer.pt"))
            print(
                f"{epoch:2d}/{args.epochs} train {total / len(train_loader.dataset):.4f} "
                f"valid {loss:.4f} mean gap {gap:.2f} MPa scale {step.scaler.get_scale():g}"
            )
    if audit:
        audit.report()


if __name__ == "__main__":
    main()
