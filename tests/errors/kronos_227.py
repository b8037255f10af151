"""A forecaster of price bars, on sliding windows of lookback and horizon.

After shiyu-coder/Kronos, issue 227.
"""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def random_bars(length, seed):
    """Log prices with a weak trend that reverts: open, close, volume."""
    rng = np.random.default_rng(seed)
    close, trend, rows = 4.0, 0.0, []
    for _ in range(length):
        trend = 0.9 * trend + rng.normal(0, 0.006)
        opening = close
        close = close + trend + rng.normal(0, 0.02)
        volume = 1 + 20 * abs(close - opening) + 0.2 * rng.random()
        rows.append((opening, close, volume))
    return np.array(rows, dtype=np.float32)


class CustomKlineDataset(Dataset):
    def __init__(self, bars, lookback, horizon, clip=5.0):
        self.bars, self.lookback, self.horizon = bars, lookback, horizon
        self.clip, self.window = clip, lookback + horizon

    def __len__(self):
        return len(self.bars) - self.window + 1

    def statistics(self, x):
        return x.mean(axis=0), x.std(axis=0)

    def __getitem__(self, index):
        x = self.bars[index : index + self.window]
        x_mean, x_std = self.statistics(x)
        x = np.clip((x - x_mean) / (x_std + 1e-5), -self.clip, self.clip)
        past, future = x[: self.lookback], x[self.lookback :]
        scale = np.stack([x_mean, x_std])
        return tuple(torch.from_numpy(part) for part in (past, future, scale))


class LookbackKlineDataset(CustomKlineDataset):
    def statistics(self, x):
        past = x[: self.lookback]
        return past.mean(axis=0), past.std(axis=0)


class Forecaster(nn.Module):
    def __init__(self, horizon, columns=3, hidden=32):
        super().__init__()
        self.horizon = horizon
        self.rnn = nn.GRU(columns, hidden, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(hidden + columns, hidden), nn.ReLU(),
            nn.Linear(hidden, horizon * columns),
        )  # fmt: skip

    def forward(self, x):
        state = self.rnn(x)[1][-1]
        out = self.head(torch.cat([state, x.mean(1)], 1))
        return x[:, -1:] + out.view(len(x), self.horizon, -1)


@torch.no_grad()
def evaluate(model, loader):
    """Normalised loss, and the error of the close in units of the log price."""
    model.eval()
    losses, errors = [], []
    for past, future, scale in loader:
        predicted = model(past)
        losses.append(F.mse_loss(predicted, future, reduction="none").mean((1, 2)))
        off = (predicted - future)[..., 1] * (scale[:, 1:2, 1] + 1e-5)
        errors.append(off.abs().mean(1))
    model.train()
    return torch.cat(losses).mean().item(), torch.cat(errors).mean().item()


def train(args, dataset_class, path):
    torch.manual_seed(args.seed)
    bars = random_bars(1500, 1)
    train_set = dataset_class(bars[:1100], args.lookback, args.horizon)
    val_set = dataset_class(bars[1100:], args.lookback, args.horizon)
    loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    held = DataLoader(val_set, 128)
    model, best = Forecaster(args.horizon), float("inf")
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.epochs * len(loader)
    )
    for epoch in range(args.epochs):
        for past, future, _ in loader:
            loss = F.mse_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            scheduler.step()
        val_loss, error = evaluate(model, held)
        print(
            f"epoch {epoch} loss {loss.item():.4f} "
            f"validation {val_loss:.4f} price error {error:.4f}",
            flush=True,
        )
        if val_loss < best:
            best = val_loss
            torch.save(model.state_dict(), path)
    model.load_state_dict(torch.load(path))
    print(f"best price error {evaluate(model, held)[1]:.4f}", flush=True)


def change_by_future(args, dataset_class):
    """By how much other bars in the horizon change a window's input."""
    bars = random_bars(200, 3)
    other = bars.copy()
    other[args.lookback : args.lookback + args.horizon] += 0.5
    one, two = (dataset_class(b, args.lookback, args.horizon) for b in (bars, other))
    return (one[0][0] - two[0][0]).abs().max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lookback", type=int, default=24)
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dataset_class = LookbackKlineDataset if args.fixed else CustomKlineDataset
    with tempfile.TemporaryDirectory() as folder:
        train(args, dataset_class, os.path.join(folder, "best.pt"))
    if args.prove:
        change = change_by_future(args, dataset_class)
        print(f"other bars in the horizon change the input by {change:.4f}")
        print("fault shows:", "yes" if change > 0 else "no", flush=True)


if __name__ == "__main__":
    main()
