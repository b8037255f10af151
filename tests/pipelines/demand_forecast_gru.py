"""Hourly demand forecasting, GRU encoder-decoder with quantile outputs.

Company style: a config dict, a Forecaster class, early stopping, ReduceLROnPlateau,
the best checkpoint kept on disk, report on a later test period.
"""
import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

QUANTILES = (0.1, 0.5, 0.9)


def simulate_demand(hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    day = np.sin(2 * np.pi * (t % 24) / 24 - 1.8)
    week = np.where((t // 24) % 7 >= 5, -0.6, 0.0)
    noise = np.zeros(hours)
    for i in range(1, hours):
        noise[i] = 0.85 * noise[i - 1] + rng.normal(0, 0.12)
    return (100 + 30 * (day + week) + 15 * noise + 0.002 * t).astype(np.float32)


def calendar(hours):
    t = np.arange(hours)
    return np.stack(
        [
            np.sin(2 * np.pi * t / 24),
            np.cos(2 * np.pi * t / 24),
            ((t // 24) % 7 >= 5).astype(float),
        ],
        axis=1,
    ).astype(np.float32)


class WindowDataset(Dataset):
    """(past values + calendar, future calendar, future values); targets lie in [start, stop)."""

    def __init__(self, series, cal, start, stop, past, horizon, stride=1):
        self.series, self.cal = torch.from_numpy(series), torch.from_numpy(cal)
        self.past, self.horizon = past, horizon
        self.origins = list(range(max(start, past), stop - horizon + 1, stride))

    def __len__(self):
        return len(self.origins)

    def __getitem__(self, i):
        o = self.origins[i]
        past = torch.cat(
            [self.series[o - self.past : o, None], self.cal[o - self.past : o]], dim=1
        )
        return past, self.cal[o : o + self.horizon], self.series[o : o + self.horizon]


class QuantileGRU(nn.Module):
    def __init__(self, hidden, dropout):
        super().__init__()
        self.encoder = nn.GRU(4, hidden, batch_first=True)
        self.decoder = nn.GRU(3, hidden, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, len(QUANTILES))

    def forward(self, past, future):
        _, h = self.encoder(past)
        y, _ = self.decoder(future, h)
        return self.out(self.drop(y))


class PinballLoss(nn.Module):
    def __init__(self, quantiles, reduction="mean"):
        super().__init__()
        self.register_buffer("q", torch.tensor(quantiles))
        self.reduction = reduction

    def forward(self, pred, target):
        err = target.unsqueeze(-1) - pred
        loss = torch.maximum(self.q * err, (self.q - 1) * err)
        return loss.mean() if self.reduction == "mean" else loss.sum()


class Forecaster:
    def __init__(self, cfg, folder):
        self.cfg = cfg
        self.model = QuantileGRU(cfg["hidden"], cfg["dropout"])
        self.loss = PinballLoss(QUANTILES)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg["lr"])
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, mode="min", factor=0.5, patience=cfg["lr_patience"]
        )
        self.path = os.path.join(folder, "best.pt")
        self.history = []

    def train_epoch(self, loader):
        self.model.train()
        total, n = 0.0, 0
        for past, future, y in loader:
            self.optimizer.zero_grad()
            loss = self.loss(self.model(past, future), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg["clip"])
            self.optimizer.step()
            total += loss.item() * y.size(0)
            n += y.size(0)
        return total / n

    def predict(self, loader):
        self.model.eval()
        preds, trues = [], []
        with torch.no_grad():
            for past, future, y in loader:
                preds.append(self.model(past, future))
                trues.append(y)
        return torch.cat(preds), torch.cat(trues)

    def fit(self, train_loader, valid_loader):
        best, since = float("inf"), 0
        for epoch in range(self.cfg["epochs"]):
            t0 = time.time()
            train_loss = self.train_epoch(train_loader)
            valid_loss = self.loss(*self.predict(valid_loader)).item()
            lr = self.optimizer.param_groups[0]["lr"]
            self.scheduler.step(valid_loss)
            self.history.append(
                {
                    "epoch": epoch,
                    "train": round(train_loss, 4),
                    "valid": round(valid_loss, 4),
                    "lr": lr,
                    "seconds": round(time.time() - t0, 2),
                }
            )
            print(json.dumps(self.history[-1]))
            if valid_loss < best - 1e-4:
                best, since = valid_loss, 0
                torch.save(self.model.state_dict(), self.path)
            else:
                since += 1
            if since >= self.cfg["patience"]:
                print(f"early stop after epoch {epoch}, best {best:.4f}")
                break
        self.model.load_state_dict(torch.load(self.path, weights_only=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=21)
    args = parser.parse_args()
    cfg = dict(
        past=48,
        horizon=12,
        hidden=32,
        dropout=0.1,
        lr=8e-3,
        batch=64,
        clip=1.0,
        patience=4,
        lr_patience=1,
        epochs=args.epochs,
    )
    torch.manual_seed(args.seed)

    hours = 24 * 7 * 14
    raw, cal = simulate_demand(hours, args.seed), calendar(hours)
    cut1, cut2 = int(hours * 0.7), int(hours * 0.85)
    mean, std = raw[:cut1].mean(), raw[:cut1].std()
    series = (raw - mean) / std

    def make(a, b, stride):
        return WindowDataset(series, cal, a, b, cfg["past"], cfg["horizon"], stride)

    train_loader = DataLoader(make(0, cut1, 1), batch_size=cfg["batch"], shuffle=True)
    valid_loader = DataLoader(make(cut1, cut2, 3), batch_size=256)
    test_loader = DataLoader(make(cut2, hours, 6), batch_size=256)

    with tempfile.TemporaryDirectory() as folder:
        f = Forecaster(cfg, folder)
        f.fit(train_loader, valid_loader)
    pred, true = f.predict(test_loader)
    mae = (pred[..., 1] - true).abs().mean().item() * std
    inside = ((true >= pred[..., 0]) & (true <= pred[..., 2])).float().mean().item()
    print(
        f"test MAE {mae:.2f} units (std of demand {std:.2f}); 80% interval covers {100 * inside:.0f}%"
    )


if __name__ == "__main__":
    main()
