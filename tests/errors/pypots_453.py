"""Imputation of partially observed sensor series.

A small attention model fills artificially removed values; every window is instance-normalised
with statistics of its observed part and mapped back afterwards.
"""
import argparse

import numpy as np
import torch
from torch import nn


# --------------------------------------------------------------------------------------
# data: plants with several sensors, each with its own level, amplitude and period
# --------------------------------------------------------------------------------------
def build_windows(n, length, n_feat, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(length)
    out = np.zeros((n, length, n_feat))
    for i in range(n):
        period = rng.uniform(8, 20)
        base = np.sin(2 * np.pi * t / period + rng.uniform(0, 6.28))
        for f in range(n_feat):
            level = rng.normal(0, 20)
            amp = np.exp(rng.normal(1.2, 0.9))
            lag = 2 * f
            noise = 0.1 * rng.normal(size=length)
            out[i, :, f] = level + amp * (np.roll(base, lag) + noise)
    gaps = rng.random(out.shape) < 0.15
    return out.astype(np.float32), gaps


class Windows(torch.utils.data.Dataset):
    """X: input with zeros where unknown; observed: known to the model; hidden: removed for training/scoring."""

    def __init__(self, values, gaps, rate, seed):
        rng = np.random.default_rng(seed)
        hidden = (rng.random(values.shape) < rate) & ~gaps
        self.truth = torch.from_numpy(values)
        self.observed = torch.from_numpy((~gaps & ~hidden).astype(np.float32))
        self.hidden = torch.from_numpy(hidden.astype(np.float32))

    def __len__(self):
        return len(self.truth)

    def __getitem__(self, i):
        return (
            self.truth[i] * self.observed[i],
            self.observed[i],
            self.hidden[i],
            self.truth[i],
        )


class RevIN(nn.Module):
    def __init__(self, n_feat, eps=1e-5, fixed=False):
        super().__init__()
        self.eps, self.fixed = eps, fixed
        self.weight = nn.Parameter(torch.ones(n_feat))
        self.bias = nn.Parameter(torch.zeros(n_feat))

    def normalize(self, x, mask=None):
        if mask is None:
            self.mean = x.mean(1, keepdim=True).detach()
            self.stdev = torch.sqrt(
                x.var(1, keepdim=True, unbiased=False) + self.eps
            ).detach()
            x = (x - self.mean) / self.stdev
        else:
            count = mask.sum(1, keepdim=True).clamp_min(1)
            self.mean = ((x * mask).sum(1, keepdim=True) / count).detach()
            x = (x - self.mean) * mask
            self.stdev = torch.sqrt(
                (x * x).sum(1, keepdim=True) / count + self.eps
            ).detach()
            if self.fixed:
                x = x / self.stdev
        return x * self.weight + self.bias

    def denormalize(self, x):
        x = (x - self.bias) / (self.weight + self.eps**2)
        return x * self.stdev + self.mean


class Imputer(nn.Module):
    def __init__(self, length, n_feat, dim=48, layers=2, fixed=False):
        super().__init__()
        self.revin = RevIN(n_feat, fixed=fixed)
        self.embed = nn.Linear(2 * n_feat, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(length, dim))
        block = nn.TransformerEncoderLayer(
            dim, 4, 96, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, n_feat)

    def forward(self, x, observed):
        z = self.revin.normalize(x, observed)
        h = self.embed(torch.cat([z, observed], dim=-1)) + self.pos
        return self.revin.denormalize(self.head(self.encoder(h)))


def masked_mae(pred, true, mask):
    return ((pred - true).abs() * mask).sum() / mask.sum().clamp_min(1)


def training_loss(pred, truth, observed, hidden, scale):
    recon = masked_mae(pred / scale, truth / scale, observed)
    fill = masked_mae(pred / scale, truth / scale, hidden)
    return recon + fill


@torch.no_grad()
def evaluate(model, data, scale):
    model.eval()
    x, o, h, y = (torch.stack(c) for c in zip(*[data[i] for i in range(len(data))]))
    pred = model(x, o)
    model.train()
    carry = y * o
    for t in range(1, y.shape[1]):
        carry[:, t] = torch.where(o[:, t] > 0, carry[:, t], carry[:, t - 1])
    return (
        masked_mae(pred / scale, y / scale, h).item(),
        masked_mae(carry / scale, y / scale, h).item(),
    )


@torch.no_grad()
def round_trip(model, data):
    x, o, _, _ = (torch.stack(c) for c in zip(*[data[i] for i in range(64)]))
    z = model.revin.normalize(x, o)
    back = model.revin.denormalize(z)
    spread = ((z - model.revin.bias) ** 2 * o).sum(1).div(o.sum(1).clamp_min(1)).sqrt()
    return masked_mae(back, x, o).item(), spread.min().item(), spread.max().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=10)
    cli.add_argument("--batch_size", type=int, default=40)
    cli.add_argument("--length", type=int, default=32)
    cli.add_argument("--features", type=int, default=4)
    cli.add_argument("--missing", type=float, default=0.2)
    cli.add_argument("--lr", type=float, default=2e-3)
    cli.add_argument("--seed", type=int, default=8)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cfg = cli.parse_args()

    torch.manual_seed(cfg.seed)
    tr_values, tr_gaps = build_windows(400, cfg.length, cfg.features, cfg.seed)
    va_values, va_gaps = build_windows(120, cfg.length, cfg.features, cfg.seed + 1)
    scale = torch.tensor(tr_values.std(axis=1).mean(axis=0))
    val = Windows(va_values, va_gaps, cfg.missing, cfg.seed + 2)

    model = Imputer(cfg.length, cfg.features, fixed=cfg.fixed)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-3)
    step = 0
    for epoch in range(cfg.epochs):
        data = Windows(tr_values, tr_gaps, cfg.missing, 100 + epoch)
        loader = torch.utils.data.DataLoader(
            data, batch_size=cfg.batch_size, shuffle=True
        )
        losses = []
        for x, o, h, y in loader:
            loss = training_loss(model(x, o), y, o, h, scale)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
            step += 1
        mae, locf = evaluate(model, val, scale)
        print(
            f"epoch {epoch:2d}  step {step:3d}  loss {np.mean(losses):.4f}  val MAE {mae:.4f}  (carry-forward {locf:.4f})"
        )

    if cfg.prove:
        diff, lo, hi = round_trip(model, val)
        print(
            f"normalise + denormalise changes observed values by {diff:.5f} on average"
        )
        print(f"spread of the normalised windows: {lo:.3f} .. {hi:.3f}")
        print("fault shows:", "yes" if diff > 1e-2 else "no")


if __name__ == "__main__":
    main()
