"""Forecasts the passengers of a ferry three days ahead, walking forward in time: each
fold trains on overlapping windows up to its cut, leaves a gap, and is tested on what
follows. A fold starts from the weights of the one before with a fresh optimizer;
scales come from its own past only. The rate falls on plateaus, with a cooldown.

    python walk_forward_ferry.py --steps 200
"""

import argparse

import numpy as np
import torch
from torch import nn

WINDOW, AHEAD, GAP = 28, 3, 7


def passengers(days, seed):
    """Daily counts with weeks, seasons, growth, weather and shocks that fade."""
    rng = np.random.default_rng(seed)
    day = np.arange(days)
    week = np.array([0.8, 0.7, 0.7, 0.8, 1.2, 1.5, 1.3])[day % 7]
    season = 1.0 + 0.4 * np.sin(2 * np.pi * day / 365)
    weather = np.zeros(days)
    for i in range(1, days):
        weather[i] = 0.8 * weather[i - 1] + rng.normal(0, 0.08)
    level = 900 * (1 + day / 1500)
    return level * week * season * np.exp(weather) * np.exp(rng.normal(0, 0.03, days))


class FerryNet(nn.Module):
    """A guess of last week's same day, corrected by a small gated network."""

    def __init__(self, width=32):
        super().__init__()
        self.enter = nn.Linear(WINDOW, 2 * width)
        self.hidden = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, AHEAD)
        nn.init.normal_(self.out.weight, std=0.01)

    def forward(self, x):
        hidden = nn.functional.glu(self.enter(x), dim=1)
        hidden = hidden + nn.functional.glu(self.hidden(hidden), dim=1)
        return x[:, -7 : -7 + AHEAD] + self.out(hidden)


class Scale:
    """Logarithm and standardisation, fitted on the past only."""

    def __init__(self, past):
        self.mean, self.std = np.log(past).mean(), np.log(past).std()

    def apply(self, counts):
        return (np.log(counts) - self.mean) / self.std

    def undo(self, values):
        return np.exp(values * self.std + self.mean)


def windows(series):
    """All overlapping windows and what follows each."""
    cut = np.lib.stride_tricks.sliding_window_view(series, WINDOW + AHEAD)
    cut = torch.from_numpy(cut.astype(np.float32))
    return cut[:, :WINDOW], cut[:, WINDOW:]


def folds(days, count, test_days=60):
    """(end of training, start of validation, start of test, end of test)"""
    for i in range(count):
        end = days - (count - i) * test_days
        yield end - test_days - 2 * GAP, end - test_days - GAP, end, end + test_days


@torch.no_grad()
def percentage_error(model, x, y, scale):
    """Mean absolute percentage error, in passengers."""
    guess = scale.undo(model(x).double().numpy())
    truth = scale.undo(y.double().numpy())
    return float(np.abs(guess / truth - 1).mean())


@torch.no_grad()
def validation_loss(model, x, y):
    return nn.functional.smooth_l1_loss(model(x), y).item()


def train_fold(model, train, val, steps, args, name):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=1, cooldown=1, threshold=0.01
    )
    x, y = train
    step = 0
    while step < steps:
        order = torch.randperm(len(x))
        for rows in order.split(args.batch_size):
            loss = nn.functional.smooth_l1_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                print(f"{name} step {step} loss {loss.item():.6f}", flush=True)
            step += 1
            if step == steps:
                break
        plateau.step(validation_loss(model, *val))
    print(f"{name} rate at the end {optimizer.param_groups[0]['lr']:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="of all folds")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=26)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    series = passengers(1200, seed=1)
    steps = max(1, args.steps // args.folds)

    before, errors, naive = None, [], []
    for i, (end, val_from, test_from, test_to) in enumerate(folds(1200, args.folds)):
        scale = Scale(series[:end])
        scaled = scale.apply(series)
        train = windows(scaled[:end])
        val = windows(scaled[val_from : test_from - GAP])
        test = windows(scaled[test_from:test_to])
        model = FerryNet()
        if before is not None:
            model.load_state_dict(before)
        train_fold(model, train, val, steps, args, f"fold {i}")
        errors.append(percentage_error(model, *test, scale))
        naive.append(percentage_error(lambda x: x[:, -7 : -7 + AHEAD], *test, scale))
        on_train = percentage_error(model, *train, scale)
        print(f"  error {errors[-1]:.4f}, on its past {on_train:.4f}", flush=True)
        before = {k: v.clone() for k, v in model.state_dict().items()}
    print(f"mean error {np.mean(errors):.4f}, last week's day {np.mean(naive):.4f}")


if __name__ == "__main__":
    main()
