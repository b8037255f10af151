"""Six hour forecast of the power drawn by a tram depot.

Input is two days of load and outside temperature plus the calendar; the hours to be
forecast come with the weather service's temperature.  Load has a morning and an evening
peak, a weekly pattern and heating on cold days.
"""
import argparse
import logging
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("depot")

PAST, AHEAD = 48, 6


def depot_series(days=110, seed=44):
    rng = np.random.default_rng(seed)
    hour = np.arange(days * 24)
    clock, weekday = hour % 24, (hour // 24) % 7
    season = 9 - 6 * np.cos(2 * np.pi * hour / (24 * 220))
    weather = np.convolve(rng.normal(0, 1, len(hour) + 35), np.ones(36) / 6, "valid")
    temp = season + 3 * np.sin(2 * np.pi * (clock - 9) / 24) + 2 * weather
    peaks = np.exp(-((clock - 5) ** 2) / 6) + 0.8 * np.exp(-((clock - 21) ** 2) / 8)
    load = 200 + 260 * peaks * np.where(weekday < 5, 1.0, 0.6)
    load += 9 * np.clip(14 - temp, 0, None)
    slow = np.zeros(len(hour))
    for t in range(1, len(hour)):
        slow[t] = 0.92 * slow[t - 1] + rng.normal(0, 9)
    load += slow + rng.normal(0, 10, len(hour))
    load[-30:] += 170 * np.sin(np.pi * np.arange(30) / 11) ** 2  # night works on line 4
    calendar = np.stack(
        [np.sin(2 * np.pi * clock / 24), np.cos(2 * np.pi * clock / 24), weekday >= 5],
        1,
    )
    return load, temp, calendar.astype(np.float64)


class Windows(Dataset):
    def __init__(self, load, temp, calendar, begin, end, stride):
        self.load, self.known = load, np.column_stack([temp, calendar])
        self.starts = range(begin, end - PAST - AHEAD + 1, stride)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        a = self.starts[i]
        b, c = a + PAST, a + PAST + AHEAD
        past = np.column_stack([self.load[a:b], self.known[a:b]])
        parts = past, self.known[b:c], self.load[b:c]
        return tuple(torch.tensor(p, dtype=torch.float32) for p in parts)


class DepotGRU(nn.Module):
    """Encoder over the past, decoder that runs over the known future inputs."""

    def __init__(self, hidden=24):
        super().__init__()
        self.encoder = nn.GRU(5, hidden, batch_first=True)
        self.decoder = nn.GRU(4, hidden, batch_first=True)
        self.out = nn.Sequential(
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, past, known):
        _, state = self.encoder(past)
        states, _ = self.decoder(known, state)
        return past[:, -1, 0:1] + self.out(states).squeeze(-1)


class EarlyStopping:
    def __init__(self, path, patience):
        self.path, self.patience = path, patience
        self.best, self.best_epoch = float("inf"), None

    def update(self, epoch, value, model):
        """Save on improvement; True when it is time to stop."""
        if value < self.best:
            self.best, self.best_epoch = value, epoch
            state = {"model": model.state_dict(), "epoch": epoch, "valid_loss": value}
            torch.save(state, self.path)
            return False
        return epoch - self.best_epoch >= self.patience


@torch.no_grad()
def validate(model, loader, loss_fn, fixed):
    model.eval()
    losses, weights = [], []
    for past, known, load in loader:
        losses.append(loss_fn(model(past, known), load).item())
        weights.append(len(load) if fixed else 1)
    model.train()
    return float(np.average(losses, weights=weights))


class PooledRecord:
    """Loss over all validation windows at once, and what it would have selected."""

    def __init__(self):
        self.rows = []

    @torch.no_grad()
    def note(self, model, loader, loss_fn, value):
        model.eval()
        batches = [(model(past, known), load) for past, known, load in loader]
        guess, load = (torch.cat(column) for column in zip(*batches))
        self.rows.append((value, loss_fn(guess, load).item()))
        model.train()

    def report(self, chosen):
        used, pooled = zip(*self.rows)
        best = int(np.argmin(pooled))
        gap = max(abs(a - b) for a, b in self.rows)
        print(f"used {['%.4f' % v for v in used]}")
        print(f"all windows {['%.4f' % v for v in pooled]}")
        print(f"chosen epoch {chosen}, over all windows {best}, largest gap {gap:.4f}")
        print("fault shows:", "yes" if gap > 1e-4 and chosen != best else "no")


def make_loaders(args):
    load, temp, calendar = depot_series()
    cut = int(0.62 * len(load))
    load = (load - load[:cut].mean()) / load[:cut].std()
    temp = (temp - temp[:cut].mean()) / temp[:cut].std()
    train = Windows(load, temp, calendar, 0, cut, 2)
    valid = Windows(load, temp, calendar, cut, len(load), 5)
    shuffle = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(train, args.batch, shuffle=True, generator=shuffle)
    return train_loader, DataLoader(valid, args.batch)


def main():
    parser = argparse.ArgumentParser(description="depot load forecast")
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch", type=int, default=62)
    parser.add_argument("--patience", type=int, default=4)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--seed", type=int, default=45)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(message)s")
    torch.manual_seed(args.seed)

    train_loader, valid_loader = make_loaders(args)
    logger.info("%d / %d windows", len(train_loader.dataset), len(valid_loader.dataset))
    model = DepotGRU()
    loss_fn = nn.SmoothL1Loss(beta=0.3)
    optimizer = torch.optim.NAdam(model.parameters(), lr=args.lr)
    record = PooledRecord() if args.prove else None
    with tempfile.TemporaryDirectory() as folder:
        stopper = EarlyStopping(os.path.join(folder, "depot.pt"), args.patience)
        for epoch in range(args.epochs):
            total = 0.0
            for past, known, load in train_loader:
                optimizer.zero_grad()
                loss = loss_fn(model(past, known), load)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                total += loss.item() * len(load)
            train_loss = total / len(train_loader.dataset)
            valid_loss = validate(model, valid_loader, loss_fn, args.fixed)
            logger.info("epoch %d train %.4f valid %.4f", epoch, train_loss, valid_loss)
            if record:
                record.note(model, valid_loader, loss_fn, valid_loss)
            if stopper.update(epoch, valid_loss, model):
                break
        model.load_state_dict(torch.load(stopper.path)["model"])
    logger.info("kept epoch %d with %.4f", stopper.best_epoch, stopper.best)
    if record:
        record.report(stopper.best_epoch)


if __name__ == "__main__":
    main()
