"""Softness of leather from the sensors of the tanning drum.

Hides are tanned in lots; a lot has its own liquor and its own season, and a few hides of
each lot go to the laboratory.  Softness is read in millimetres.
"""

import argparse
import pickle
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SENSORS = [
    "pH",
    "chrome",
    "salt",
    "temperature",
    "drum speed",
    "float ratio",
    "fat liquor",
    "thickness",
]


def tan(lots, per_lot, rng):
    """Rows stay in the order of the lots, as they come from the drum log."""
    liquor = rng.normal(0, 1, (lots, len(SENSORS)))
    spread = np.array([0.3, 0.4, 0.4, 0.6, 0.7, 0.5, 0.6, 1.0])
    hides = liquor.repeat(per_lot, 0) + spread * rng.normal(
        0, 1, (lots * per_lot, len(SENSORS))
    )
    ph, chrome, salt, heat, speed, bath, fat, thick = hides.T
    softness = (
        4.0
        + 0.9 * np.tanh(fat + 0.5 * chrome)
        - 0.5 * thick
        + 0.4 * ph * heat
        - 0.3 * np.abs(salt - 0.5)
        + 0.15 * speed
        - 0.1 * bath
    )
    units = np.array([0.4, 1.2, 3.0, 4.0, 2.0, 0.3, 1.5, 0.25])
    offsets = np.array([3.8, 6.0, 20.0, 34.0, 9.0, 1.6, 8.0, 1.9])
    readings = offsets + units * hides
    softness = softness + 0.15 * rng.normal(size=len(softness))
    return readings.astype(np.float32), softness.astype(np.float32)


class Hides(Dataset):
    def __init__(self, readings, softness):
        self.readings, self.softness = readings, softness

    def __len__(self):
        return len(self.readings)

    def __getitem__(self, row):
        return self.readings[row], self.softness[row]


def collate(items, mean, std, fixed):
    """Stack the hides and bring the sensors to a common scale."""
    readings = torch.tensor(np.stack([reading for reading, _ in items]))
    softness = torch.tensor(np.array([value for _, value in items]))
    if not fixed:
        mean, std = readings.mean(0), readings.std(0)
    return (readings - mean) / (std + 1e-6), softness


class Softness(nn.Module):
    def __init__(self, hidden=(64, 32), dropout=0.05):
        super().__init__()
        sizes = [len(SENSORS), *hidden]
        layers = []
        for before, after in zip(sizes, sizes[1:]):
            layers += [nn.Linear(before, after), nn.Mish(), nn.Dropout(dropout)]
        self.trunk = nn.Sequential(*layers)
        self.mean = nn.Linear(sizes[-1], 1)
        self.log_var = nn.Linear(sizes[-1], 1)

    def forward(self, readings):
        h = self.trunk(readings)
        return self.mean(h).squeeze(1), self.log_var(h).squeeze(1).clamp(-6, 3)


def make_loaders(args):
    rng = np.random.default_rng(args.seed + 50)
    train = Hides(*tan(90, 20, rng))
    valid = Hides(*tan(24, 20, rng))
    join = partial(
        collate,
        mean=torch.tensor(train.readings.mean(0)),
        std=torch.tensor(train.readings.std(0)),
        fixed=args.fixed,
    )
    train_loader = DataLoader(
        train,
        batch_size=args.batch,
        shuffle=True,
        drop_last=True,
        collate_fn=join,
        generator=torch.Generator().manual_seed(args.seed),
    )
    valid_loader = DataLoader(valid, batch_size=20, collate_fn=join)
    return train_loader, valid_loader


def evaluate(model, loader, criterion):
    model.eval()
    guesses, truths, losses = [], [], []
    with torch.no_grad():
        for readings, softness in loader:
            mean, log_var = model(readings)
            losses.append(criterion(mean, softness, log_var.exp()).item())
            guesses.append(mean)
            truths.append(softness)
    guess, truth = torch.cat(guesses), torch.cat(truths)
    rmse = (guess - truth).pow(2).mean().sqrt().item()
    correlation = torch.corrcoef(torch.stack([guess, truth]))[0, 1].item()
    return sum(losses) / len(losses), rmse, correlation


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_loader, valid_loader = make_loaders(args)
    model = Softness()
    criterion = nn.GaussianNLLLoss()
    optimizer = torch.optim.RAdam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [8, 12], gamma=0.3)
    records = []
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for readings, softness in train_loader:
            mean, log_var = model(readings)
            loss = criterion(mean, softness, log_var.exp())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        scheduler.step()
        nll, rmse, correlation = evaluate(model, valid_loader, criterion)
        records.append((epoch, total / len(train_loader), nll, rmse, correlation))
        print(
            "epoch %2d  train nll %7.4f  valid nll %7.4f  rmse %.3f mm  r %.3f"
            % records[-1]
        )
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        torch.save(model.state_dict(), folder / "softness.pt")
        with open(folder / "records.pkl", "wb") as stream:
            pickle.dump(records, stream)
    print("lowest rmse %.3f mm" % min(record[3] for record in records))


if __name__ == "__main__":
    main()
