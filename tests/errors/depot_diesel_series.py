"""Diesel drawn at bus depots: thirty weeks are known, the next six are forecast.

Every depot has its own level and its own drift, so each series is brought to a common
scale first.  A seq2seq GRU forecasts in that scale; errors are told in kilolitres.
"""

import argparse
import csv
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HISTORY = 30
HORIZON = 6


def weekly_draws(depots, rng):
    weeks = HISTORY + HORIZON
    level = rng.lognormal(3.0, 0.5, (depots, 1))
    drift = np.cumsum(rng.normal(0, 0.05, (depots, weeks)), axis=1)
    drift = drift + rng.normal(0, 0.006, (depots, 1)) * np.arange(weeks)
    phase = rng.uniform(0, 2 * np.pi, (depots, 1))
    season = 0.10 * np.sin(2 * np.pi * np.arange(weeks) / 13 + phase)
    noise = rng.normal(0, 0.02, (depots, weeks))
    return (level * np.exp(drift + season + noise)).astype(np.float32)


class Scaler:
    """Per-depot centre and spread."""

    def __init__(self, fixed):
        self.fixed = fixed

    def statistics(self, series):
        known = series[:, :HISTORY] if self.fixed else series
        return known.mean(1, keepdim=True), known.std(1, keepdim=True)

    def prepare(self, series):
        centre, spread = self.statistics(series)
        scaled = (series - centre) / spread
        return scaled[:, :HISTORY], scaled[:, HISTORY:], centre, spread


class Forecaster(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.encoder = nn.GRU(2, hidden, batch_first=True)
        self.cell = nn.GRUCell(2, hidden)
        self.emit = nn.Linear(hidden, 1)
        self.register_buffer("clock", torch.linspace(-1, 1, HISTORY + HORIZON))

    def forward(self, history):
        count = len(history)
        clock = self.clock[:HISTORY].expand(count, HISTORY)
        _, state = self.encoder(torch.stack([history, clock], 2))
        state, last, steps = state[0], history[:, -1:], []
        for week in range(HORIZON):
            now = self.clock[HISTORY + week].expand(count, 1)
            state = self.cell(torch.cat([last, now], 1), state)
            last = last + self.emit(state)
            steps.append(last)
        return torch.cat(steps, 1)


def backtest(model, scaler, series):
    """Mean absolute error in kilolitres, and in the common scale, over held-out depots."""
    history, future, centre, spread = scaler.prepare(series)
    model.eval()
    with torch.no_grad():
        guess = model(history)
    model.train()
    scaled = F.l1_loss(guess, future).item()
    volume = (guess - future).abs().mul(spread).mean().item()
    return scaled, volume


@torch.no_grad()
def next_weeks(model, history):
    """Forecast for depots whose next weeks have not happened yet."""
    model.eval()
    centre = history.mean(1, keepdim=True)
    spread = history.std(1, keepdim=True)
    guess = model((history - centre) / spread) * spread + centre
    model.train()
    return guess


def run(args, folder):
    rng = np.random.default_rng(args.seed)
    series = torch.from_numpy(weekly_draws(args.depots, rng))
    cut = int(0.7 * args.depots), int(0.85 * args.depots)
    train, valid, fresh = series[: cut[0]], series[cut[0] : cut[1]], series[cut[1] :]
    scaler = Scaler(args.fixed)
    history, future, _, _ = scaler.prepare(train)

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.86)
    shuffle = torch.Generator().manual_seed(args.seed + 1)
    best = None
    path = os.path.join(folder, "forecaster.pt")
    with open(os.path.join(folder, "log.csv"), "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["epoch", "train", "valid", "kilolitres"])
        for epoch in range(1, args.epochs + 1):
            total = 0.0
            for rows in torch.randperm(len(train), generator=shuffle).split(args.batch):
                loss = F.l1_loss(model(history[rows]), future[rows])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                total += loss.item() * len(rows)
            decay.step()
            scaled, volume = backtest(model, scaler, valid)
            writer.writerow([epoch, total / len(train), scaled, volume])
            print(
                f"epoch {epoch:2d}: train {total / len(train):.4f} "
                f"valid {scaled:.4f} ({volume:.3f} kl)"
            )
            if best is None or scaled < best:
                best = scaled
                torch.save(model.state_dict(), path)

    model.load_state_dict(torch.load(path))
    guess = next_weeks(model, fresh[:, :HISTORY])
    miss = (guess - fresh[:, HISTORY:]).abs()
    naive = (fresh[:, HISTORY - 1 : HISTORY] - fresh[:, HISTORY:]).abs()
    print(f"valid at best {best:.4f}")
    print(f"next six weeks: {miss.mean():.3f} kl, last value {naive.mean():.3f} kl")
    for week in range(HORIZON):
        print(f"  week +{week + 1}: {miss[:, week].mean():.3f} kl")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depots", type=int, default=1600)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    with tempfile.TemporaryDirectory() as workdir:
        run(options, workdir)
