"""
Pump condition monitoring: classify 4 states from 3-axis vibration + current + temperature.

Internal tool, v0.3
"""
import argparse
import json
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

STATES = ("normal", "imbalance", "cavitation", "bearing")
CHANNELS = 5
TIMESTEPS = 40

DEFAULTS = {
    "hidden": 48,
    "layers": 1,
    "lr": 3e-3,
    "batch_size": 64,
    "train_windows": 3000,
    "valid_windows": 400,
}


def simulate(count, rng):
    t = np.arange(TIMESTEPS)
    state = rng.choice(4, size=count, p=[0.55, 0.2, 0.15, 0.1])
    x = 0.4 * rng.standard_normal((count, TIMESTEPS, CHANNELS))
    phase = rng.uniform(0, 2 * np.pi, size=(count, 1))
    speed = rng.uniform(0.9, 1.1, size=(count, 1))
    base = np.sin(0.5 * speed * t + phase)
    x[:, :, 0] += base
    x[:, :, 1] += np.cos(0.5 * speed * t + phase)
    x[:, :, 3] += 0.2
    imbalance = state == 1
    x[imbalance, :, 0] += 0.9 * base[imbalance]
    cavitation = state == 2
    bursts = (
        (rng.random((count, TIMESTEPS)) < 0.2)
        * rng.standard_normal((count, TIMESTEPS))
        * 2.0
    )
    x[cavitation, :, 2] += bursts[cavitation]
    bearing = state == 3
    x[bearing, :, 2] += 0.9 * np.sin(1.7 * t + phase)[bearing]
    # slow drift of the temperature towards the end for a bad bearing
    x[bearing, :, 4] += np.linspace(0, 1, TIMESTEPS)
    return x.astype(np.float32), state


class ConditionModel(nn.Module):
    def __init__(self, cfg, fixed):
        super().__init__()
        if fixed:
            self.lstm = nn.LSTM(
                CHANNELS, cfg["hidden"], cfg["layers"], batch_first=True
            )
        else:
            self.lstm = nn.LSTM(CHANNELS, cfg["hidden"], cfg["layers"])
        self.norm = nn.LayerNorm(cfg["hidden"])
        self.classifier = nn.Linear(cfg["hidden"], len(STATES))

    def forward(self, window):
        # window: (batch, time, channel)
        out, _ = self.lstm(window)
        last = out[:, -1]
        return self.classifier(self.norm(last))


class Runner:
    def __init__(self, cfg, options):
        self.cfg = cfg
        self.options = options
        rng = np.random.default_rng(12)
        xt, yt = simulate(cfg["train_windows"], rng)
        xv, yv = simulate(cfg["valid_windows"], rng)
        center, scale = xt.mean((0, 1)), xt.std((0, 1))
        self.train_x = torch.from_numpy((xt - center) / scale)
        self.valid_x = torch.from_numpy((xv - center) / scale)
        self.train_y, self.valid_y = torch.from_numpy(yt), torch.from_numpy(yv)
        freq = np.bincount(yt, minlength=4)
        weights = (1.0 / np.sqrt(freq))[yt]
        sampler = WeightedRandomSampler(weights.tolist(), len(yt), replacement=True)
        self.loader = DataLoader(
            TensorDataset(self.train_x, self.train_y),
            batch_size=cfg["batch_size"],
            sampler=sampler,
            drop_last=True,
        )
        self.model = ConditionModel(cfg, options.fixed)
        self.optim = torch.optim.RAdam(self.model.parameters(), lr=cfg["lr"])
        self.loss = nn.CrossEntropyLoss()
        self.done = 0

    def batches(self):
        while True:
            yield from self.loader

    def fit(self):
        losses = []
        for x, y in self.batches():
            if self.done >= self.options.steps:
                break
            self.model.train()
            self.optim.zero_grad()
            loss = self.loss(self.model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optim.step()
            losses.append(loss.item())
            self.done += 1
            if self.done % 40 == 0:
                record = {"step": self.done, "loss": round(float(np.mean(losses)), 4)}
                record.update(self.validate())
                print(json.dumps(record))
                losses = []

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        guess = torch.cat(
            [self.model(x) for x in self.valid_x.split(self.cfg["batch_size"])]
        ).argmax(1)
        recall = [
            (guess[self.valid_y == s] == s).float().mean().item() for s in range(4)
        ]
        return {
            "acc": round((guess == self.valid_y).float().mean().item(), 4),
            "recall": [round(r, 3) for r in recall],
        }


def main(argv):
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    options = ap.parse_args(argv)
    torch.manual_seed(12)
    runner = Runner(dict(DEFAULTS), options)
    runner.fit()
    print("final", json.dumps(runner.validate()))

    if options.prove:
        runner.model.eval()
        with torch.no_grad():
            a = runner.valid_x[:8]
            b = a.clone()
            b[0] += 1.0
            others = (runner.model(a) - runner.model(b))[1:].abs().max().item()
        print(
            f"scores of the other windows change by {others:.6f} when one window changes"
        )
        print("fault shows:", "yes" if others > 1e-4 else "no")


if __name__ == "__main__":
    main(sys.argv[1:])
