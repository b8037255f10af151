#!/usr/bin/env python
"""
Day-ahead forecast of hourly electricity load.

LSTM over the last 72 hours, direct prediction of the next 12 hours.
The series is split by time: 70 % train, 15 % validation, 15 % test.
"""
import argparse
import logging

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("energy")

HISTORY, HORIZON = 72, 12


def simulate_load(hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    temp = (
        12
        + 9 * np.sin(2 * np.pi * t / (24 * 365))
        + 4 * np.sin(2 * np.pi * (t - 9) / 24)
    )
    noise = np.zeros(hours)
    for i in range(1, hours):
        noise[i] = 0.95 * noise[i - 1] + rng.normal(0, 0.5)
    temp = temp + noise
    weekend = ((t // 24) % 7 >= 5).astype(float)
    hour = t % 24
    daily = 180 * np.exp(-((hour - 19) ** 2) / 12) + 120 * np.exp(
        -((hour - 8) ** 2) / 8
    )
    load = (
        600
        + daily * (1 - 0.35 * weekend)
        + 9 * np.maximum(15 - temp, 0)
        + rng.normal(0, 8, hours)
    )
    calendar = np.stack(
        [np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24), weekend], axis=1
    )
    return load, temp, calendar


class Standardizer:
    def __init__(self, values):
        self.mean, self.std = float(np.mean(values)), float(np.std(values))

    def __call__(self, v):
        return (v - self.mean) / self.std

    def undo(self, v):
        return v * self.std + self.mean


class Windows(Dataset):
    """Windows that lie entirely inside [start, stop) of the series."""

    def __init__(self, load, temp, calendar, start, stop, stride=1):
        self.features = torch.tensor(
            np.column_stack([load, temp, calendar]), dtype=torch.float32
        )
        self.calendar = torch.tensor(calendar, dtype=torch.float32)
        self.target = torch.tensor(load, dtype=torch.float32)
        self.starts = list(range(start, stop - HISTORY - HORIZON + 1, stride))

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        a = self.starts[i]
        b = a + HISTORY
        return (
            self.features[a:b],
            self.calendar[b : b + HORIZON],
            self.target[b : b + HORIZON],
        )


class Forecaster(nn.Module):
    def __init__(self, n_features=5, n_calendar=3, hidden=40):
        super().__init__()
        self.encoder = nn.LSTM(n_features, hidden, batch_first=True)
        self.decoder = nn.Sequential(
            nn.Linear(hidden + n_calendar + 1, 64), nn.ReLU(), nn.Linear(64, 1)
        )
        with torch.no_grad():  # forget gate bias
            self.encoder.bias_ih_l0[hidden : 2 * hidden].fill_(1.0)

    def forward(self, history, future_calendar):
        _, (h, _) = self.encoder(history)
        context = h[-1].unsqueeze(1).expand(-1, HORIZON, -1)
        lead = (
            torch.linspace(0, 1, HORIZON, device=history.device)
            .view(1, -1, 1)
            .expand(len(history), -1, 1)
        )
        return self.decoder(torch.cat([context, future_calendar, lead], dim=2)).squeeze(
            2
        )


def seasonal_naive(loader):
    err, n = 0.0, 0
    for history, _, y in loader:
        guess = history[:, HISTORY - 24 : HISTORY - 24 + HORIZON, 0]
        err += (guess - y).abs().sum().item()
        n += y.numel()
    return err / n


@torch.no_grad()
def mae(model, loader):
    model.eval()
    err, n = 0.0, 0
    for history, cal, y in loader:
        err += (model(history, cal) - y).abs().sum().item()
        n += y.numel()
    return err / n


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.wait, self.weights = patience, np.inf, 0, None

    def update(self, value, model):
        if value < self.best:
            self.best, self.wait = value, 0
            self.weights = {
                k: v.detach().clone() for k, v in model.state_dict().items()
            }
        else:
            self.wait += 1
        return self.wait >= self.patience


def parse_args():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--patience", type=int, default=4)
    ap.add_argument("--seed", type=int, default=0)
    return ap.parse_args()


def make_loaders(seed):
    """Train, validation and test windows, and the scale of the load."""
    hours = 24 * 140
    load, temp, calendar = simulate_load(hours, seed)
    cut1, cut2 = int(0.70 * hours), int(0.85 * hours)
    load_scale, temp_scale = Standardizer(load[:cut1]), Standardizer(temp[:cut1])
    series = (load_scale(load), temp_scale(temp), calendar)

    train = DataLoader(Windows(*series, 0, cut1, stride=2), batch_size=32, shuffle=True)
    valid = DataLoader(Windows(*series, cut1, cut2, stride=2), batch_size=128)
    test = DataLoader(Windows(*series, cut2, hours), batch_size=128)
    return train, valid, test, load_scale


def train_epoch(model, loader, loss_fn, optimizer):
    model.train()
    total, count = 0.0, 0
    for history, cal, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(history, cal), y)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        total += loss.item() * len(y)
        count += len(y)
    return total / count


def main():
    args = parse_args()
    torch.manual_seed(args.seed)

    train, valid, test, load_scale = make_loaders(args.seed)
    log.info(
        "windows: %d train, %d valid, %d test",
        *(len(d.dataset) for d in (train, valid, test))
    )

    model = Forecaster()
    loss_fn = nn.HuberLoss(delta=1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.3, patience=1
    )
    stopper = EarlyStopping(args.patience)

    for epoch in range(args.epochs):
        huber = train_epoch(model, train, loss_fn, optimizer)
        valid_mae = mae(model, valid)
        plateau.step(valid_mae)
        log.info(
            "epoch %2d huber %.4f valid MAE %.1f MW lr %.1e",
            epoch,
            huber,
            valid_mae * load_scale.std,
            optimizer.param_groups[0]["lr"],
        )
        if stopper.update(valid_mae, model):
            log.info("no gain for %d epochs", args.patience)
            break

    model.load_state_dict(stopper.weights)
    log.info(
        "test MAE %.1f MW, same hour yesterday %.1f MW",
        mae(model, test) * load_scale.std,
        seasonal_naive(test) * load_scale.std,
    )


if __name__ == "__main__":
    main()
