"""One-hour-ahead forecast of the humidity in a greenhouse."""
import argparse
import math

import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


def sensor_log(hours, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours).float()
    day = torch.sin(2 * math.pi * t / 24)
    light = (day + 0.2).clamp(min=0) * (0.6 + 0.4 * torch.rand(hours, generator=g))
    noise = torch.randn(hours, 3, generator=g)
    temp, hum, vent = torch.zeros(hours), torch.zeros(hours), torch.zeros(hours)
    for k in range(1, hours):
        vent[k] = (
            0.7 * vent[k - 1] + 0.6 * max(hum[k - 1].item(), 0) + 0.2 * noise[k, 0]
        )
        temp[k] = (
            0.85 * temp[k - 1] + 0.5 * light[k] - 0.2 * vent[k] + 0.1 * noise[k, 1]
        )
        hum[k] = (
            0.8 * hum[k - 1]
            - 0.35 * vent[k - 1]
            + 0.3 * temp[k - 1]
            + 0.45 * noise[k, 2]
        )
    return torch.stack([hum, temp, vent, light], dim=1)


class WindowDataset(Dataset):
    def __init__(self, log, length, horizon=1, fixed=False):
        self.log = log
        self.length = length
        self.horizon = horizon
        self.fixed = fixed

    def __len__(self):
        return len(self.log) - self.length - self.horizon

    def span(self, i):
        stop = i + self.length
        if self.fixed:
            target = stop - 1 + self.horizon
        else:
            target = stop - self.horizon
        return i, stop, target

    def __getitem__(self, i):
        start, stop, target = self.span(i)
        return self.log[start:stop], self.log[target, 0]


class Forecaster(nn.Module):
    def __init__(self, n_sensors=4, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(n_sensors, hidden, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, window):
        out, _ = self.rnn(window)
        return self.head(out[:, -1]).squeeze(1)


def evaluate(model, loader):
    model.eval()
    se, naive, n = 0.0, 0.0, 0
    with torch.no_grad():
        for window, target in loader:
            se += (model(window) - target).pow(2).sum().item()
            naive += target.pow(2).sum().item()
            n += len(target)
    return math.sqrt(se / n), 1 - se / naive


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--length", type=int, default=18)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(19)
    log = sensor_log(1900, seed=19)
    log = (log - log[:1400].mean(0)) / log[:1400].std(0)
    train_set = WindowDataset(log[:1400], args.length, fixed=args.fixed)
    test_set = WindowDataset(log[1400:], args.length, fixed=args.fixed)
    train_loader = DataLoader(
        train_set,
        args.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(2),
    )
    test_loader = DataLoader(test_set, 256)

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for window, target in train_loader:
            loss = nn.functional.mse_loss(model(window), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(target)
        scheduler.step()
        rmse, skill = evaluate(model, test_loader)
        print(
            f"epoch {epoch}  train mse {total / len(train_set):.4f}  "
            f"test rmse {rmse:.4f}  skill {skill:.3f}"
        )

    print(f"one hour ahead: rmse {rmse:.3f} standard deviations, skill {skill:.3f}")
    if args.prove:
        # in this log the humidity is the number of the hour
        clock = torch.arange(200).float()[:, None].repeat(1, 4)
        probe = WindowDataset(clock, args.length, fixed=args.fixed)
        lead = [(t - w[-1, 0]).item() for w, t in (probe[i] for i in range(len(probe)))]
        print(
            f"hours from the last reading to the target: {min(lead):.0f} to {max(lead):.0f}"
        )
        print("fault shows:", "no" if min(lead) >= 1 else "yes")


if __name__ == "__main__":
    main()
