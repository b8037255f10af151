#!/usr/bin/env python3
"""Moisture of lentils from near-infrared scans.

Scans come from sessions at the mill; long sessions are thinned so that no day dominates.
Later sessions are held out to see how the calibration carries over.
"""
import argparse
import json
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn

BANDS = 48


def record_session(number, seed):
    """One day at the mill: scans (rows, bands) and oven-dried moisture in percent."""
    rng = np.random.default_rng([seed, number])
    rows = int(rng.choice([110, 150, 190, 420, 520]))
    grid = np.linspace(0, 1, BANDS)
    moisture = rng.normal(12.5, 2.2, rows)
    protein = rng.normal(24.0, 1.5, rows)
    water_band = np.exp(-((grid - 0.62) ** 2) / 0.004)
    water_side = np.exp(-((grid - 0.2) ** 2) / 0.002)
    protein_band = np.exp(-((grid - 0.4) ** 2) / 0.006)
    tilt = rng.normal(0, 0.15, rows)
    scans = (
        0.8
        + 0.06 * np.outer(moisture - 12.5, water_band)
        + 0.02 * np.outer((moisture - 12.5) ** 2 / 4, water_side)
        + 0.05 * np.outer(protein - 24.0, protein_band)
        + np.outer(tilt, grid)
        + rng.normal(0, 0.03)
        + rng.normal(0, 0.02, (rows, BANDS))
    )
    return scans.astype(np.float32), moisture.astype(np.float32)


def thin(scans, moisture, cap, rng, fixed):
    """At most `cap` scans of a session, drawn at random."""
    if len(scans) <= cap:
        return scans, moisture
    if fixed:
        keep = rng.permutation(len(scans))[:cap]
        return scans[keep], moisture[keep]
    return rng.permutation(scans)[:cap], rng.permutation(moisture)[:cap]


def gather(sessions, args):
    scans, moisture = [], []
    for number in sessions:
        x, y = record_session(number, args.seed)
        rng = np.random.default_rng([args.seed, number, 1])
        x, y = thin(x, y, args.cap, rng, args.fixed)
        scans.append(x)
        moisture.append(y)
    return torch.from_numpy(np.concatenate(scans)), torch.from_numpy(
        np.concatenate(moisture)
    )


def gather_whole(sessions, args):
    pairs = [record_session(number, args.seed) for number in sessions]
    scans, moisture = zip(*pairs)
    return torch.from_numpy(np.concatenate(scans)), torch.from_numpy(
        np.concatenate(moisture)
    )


def derivative(scans):
    """First derivative along the bands, then unit variance of each scan."""
    slope = scans[:, 1:] - scans[:, :-1]
    return slope / slope.std(1, keepdim=True)


class Calibration(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.local = nn.Sequential(
            nn.Conv1d(1, 8, 7, padding=3),
            nn.ELU(),
            nn.Conv1d(8, 8, 7, padding=3, stride=2),
            nn.ELU(),
        )
        self.regress = nn.Sequential(
            nn.Linear(8 * 24, hidden),
            nn.ELU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, 1),
        )
        self.register_buffer("centre", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))

    def set_range(self, moisture):
        self.centre.fill_(moisture.mean())
        self.scale.fill_(moisture.std())

    def forward(self, scans):
        features = self.local(derivative(scans)[:, None]).flatten(1)
        return self.regress(features)[:, 0]

    def percent(self, scans):
        return self(scans) * self.scale + self.centre


def batches(count, size, generator):
    order = torch.randperm(count, generator=generator)
    for start in range(0, count, size):
        yield order[start : start + size]


@torch.no_grad()
def assess(model, scans, moisture):
    model.eval()
    guess = torch.cat([model.percent(part) for part in scans.split(256)])
    model.train()
    error = guess - moisture
    explained = 1 - error.pow(2).mean() / moisture.var(unbiased=False)
    return {
        "rmse": error.pow(2).mean().sqrt().item(),
        "bias": error.mean().item(),
        "r2": explained.item(),
    }


def fit(args, folder):
    train_x, train_y = gather(range(8), args)
    later_x, later_y = gather_whole(range(8, 11), args)
    model = Calibration()
    model.set_range(train_y)
    target = (train_y - model.centre) / model.scale
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    criterion = nn.SmoothL1Loss()
    generator = torch.Generator().manual_seed(args.seed + 5)
    history = []
    print(f"{len(train_x)} scans of 8 sessions, {len(later_x)} scans held out")
    for epoch in range(args.epochs):
        losses = []
        for rows in batches(len(train_x), args.batch, generator):
            optimizer.zero_grad()
            loss = criterion(model(train_x[rows]), target[rows])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        entry = {"epoch": epoch, "train": float(np.mean(losses))}
        entry.update(assess(model, later_x, later_y))
        history.append(entry)
        print(
            "  ".join(
                f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v:2d}"
                for k, v in entry.items()
            )
        )
    torch.save(model.state_dict(), folder / "calibration.pt")
    (folder / "history.json").write_text(json.dumps(history, indent=1))
    return history


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--cap", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as name:
        history = fit(args, pathlib.Path(name))
    best = min(history, key=lambda entry: entry["rmse"])
    print(f"best held-out RMSE {best['rmse']:.3f} % at epoch {best['epoch']}")


if __name__ == "__main__":
    main()
