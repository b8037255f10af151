#!/usr/bin/env python
"""
Day-ahead load forecast, median (or other quantile) of the next hour's load.

Example:
    python electric_load_quantiles.py --quantile 0.5
"""
import argparse
import logging

import numpy as np
import torch
from torch import nn

logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("load")

WINDOW = 48


def synthetic_load(hours: int, rng: np.random.Generator) -> np.ndarray:
    t = np.arange(hours)
    daily = np.sin(2 * np.pi * (t - 7) / 24) + 0.4 * np.sin(4 * np.pi * t / 24)
    weekly = 0.3 * ((t // 24) % 7 < 5)
    ar = np.zeros(hours)
    for i in range(1, hours):
        ar[i] = 0.9 * ar[i - 1] + 0.12 * rng.standard_normal()
    return (daily + weekly + ar).astype(np.float32)


def windows(series: np.ndarray):
    """Returns (n, WINDOW) inputs and (n,) targets."""
    view = np.lib.stride_tricks.sliding_window_view(series, WINDOW + 1)
    return torch.from_numpy(view[:, :WINDOW].copy()), torch.from_numpy(
        view[:, WINDOW].copy()
    )


class ConvForecaster(nn.Module):
    def __init__(self, channels: int = 24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, channels, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(channels, channels, 5, padding=4, dilation=2),
            nn.GELU(),
            nn.Conv1d(channels, channels, 5, padding=8, dilation=4),
            nn.GELU(),
        )
        self.readout = nn.Linear(channels * 2, 1)

    def forward(self, x):
        h = self.net(x.unsqueeze(1))
        h = torch.cat([h[:, :, -1], h.mean(-1)], dim=1)
        return self.readout(h)


def pinball_loss(pred, target, q):
    diff = target - pred
    return torch.maximum(q * diff, (q - 1) * diff).mean()


def compute_loss(model, x, y, args):
    pred = model(x)
    if args.fixed:
        pred = pred.squeeze(-1)
    return pinball_loss(pred, y, args.quantile)


def train(model, x, y, args):
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    warmup = 20
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warmup))
    gen = torch.Generator().manual_seed(args.seed)
    order, pos = torch.randperm(len(x), generator=gen), 0
    smooth = None
    for step in range(args.steps):
        if pos + args.batch_size > len(order):
            order, pos = torch.randperm(len(x), generator=gen), 0
        idx = order[pos : pos + args.batch_size]
        pos += args.batch_size

        loss = compute_loss(model, x[idx], y[idx], args)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()

        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if (step + 1) % 40 == 0:
            log.info("step %d  pinball %.4f", step + 1, smooth)


@torch.no_grad()
def forecast(model, x, batch_size=512):
    model.eval()
    return torch.cat([model(part) for part in x.split(batch_size)]).view(-1)


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=280)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--quantile", type=float, default=0.5)
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    series = synthetic_load(24 * 7 * 30, rng)
    cut = 24 * 7 * 24
    mu, sd = series[:cut].mean(), series[:cut].std()
    series = (series - mu) / sd
    x_train, y_train = windows(series[:cut])
    x_test, y_test = windows(series[cut:])

    model = ConvForecaster()
    log.info("parameters: %d", sum(p.numel() for p in model.parameters()))
    train(model, x_train, y_train, args)

    pred = forecast(model, x_test)
    log.info(
        "test MAE %.4f   spread of forecasts %.3f   spread of load %.3f",
        (pred - y_test).abs().mean(),
        pred.std(),
        y_test.std(),
    )

    if args.prove:
        xb, yb = x_test[:64], y_test[:64]
        with torch.no_grad():
            used = compute_loss(model, xb, yb, args).item()
            p = model(xb).view(-1)
            d = yb - p
            by_row = (
                torch.maximum(args.quantile * d, (args.quantile - 1) * d).mean().item()
            )
        print(f"loss used in training {used:.5f}, row by row {by_row:.5f}")
        print("fault shows:", "yes" if abs(used - by_row) > 1e-4 else "no")


if __name__ == "__main__":
    main()
