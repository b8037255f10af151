"""
Day-ahead electricity load forecast with an LSTM.

The run is done in two parts on purpose: after half of the epochs a checkpoint is
written, everything is rebuilt from scratch and the second half continues from it
(our cluster kills jobs after some hours, so this path must always work).
"""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

HISTORY, HORIZON = 48, 12


def load_curve(hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    temperature = (
        12
        + 8 * np.sin(2 * np.pi * t / (24 * 90))
        + 4 * np.sin(2 * np.pi * (t - 9) / 24)
    )
    temperature = temperature + np.convolve(
        rng.normal(0, 1.2, hours), np.ones(12) / 3, "same"
    )
    weekend = ((t // 24) % 7 >= 5).astype(float)
    daily = 6 * np.sin(2 * np.pi * (t - 7) / 24) + 3 * np.sin(4 * np.pi * (t - 3) / 24)
    load = (
        50
        + daily * (1 - 0.5 * weekend)
        - 4 * weekend
        + 0.5 * np.maximum(0, 15 - temperature)
    )
    load = load + rng.normal(0, 0.6, hours)
    return np.stack(
        [
            load,
            temperature,
            np.sin(2 * np.pi * t / 24),
            np.cos(2 * np.pi * t / 24),
            weekend,
        ],
        1,
    )


class Windows(Dataset):
    """past features -> next HORIZON loads (+ the known calendar of these hours)"""

    def __init__(self, table, stride):
        self.table = torch.tensor(table, dtype=torch.float32)
        self.starts = range(0, len(table) - HISTORY - HORIZON + 1, stride)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        past = self.table[s : s + HISTORY]
        future = self.table[s + HISTORY : s + HISTORY + HORIZON]
        return past, future[:, 2:], future[:, 0]


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.encoder = nn.LSTM(5, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.decoder = nn.LSTM(3, hidden, batch_first=True)
        self.out = nn.Sequential(nn.Linear(hidden, 32), nn.ReLU(), nn.Linear(32, 1))
        # forget gate bias of one
        for lstm in (self.encoder, self.decoder):
            for name, p in lstm.named_parameters():
                if "bias_ih" in name:
                    with torch.no_grad():
                        p[lstm.hidden_size : 2 * lstm.hidden_size].fill_(1.0)

    def forward(self, past, calendar):
        _, (h, c) = self.encoder(past)
        y, _ = self.decoder(calendar, (h[-1:].contiguous(), c[-1:].contiguous()))
        return past[:, -1:, 0] + self.out(y).squeeze(-1)


class Experiment:
    def __init__(self, args, loaders, scale):
        torch.manual_seed(args.seed)
        self.args, self.loaders, self.scale = args, loaders, scale
        self.model = Forecaster()
        self.optimizer = torch.optim.RAdam(self.model.parameters(), lr=4e-3)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(
            self.optimizer,
            milestones=[max(1, args.epochs * 2 // 3), max(2, args.epochs * 5 // 6)],
            gamma=0.3,
        )
        self.loss = nn.HuberLoss(delta=1.0)
        self.epoch, self.best = 0, float("inf")

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for past, calendar, target in self.loaders["train"]:
            self.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.amp):
                pred = self.model(past, calendar)
            loss = self.loss(pred.float(), target)
            loss.backward()
            nn.utils.clip_grad_value_(self.model.parameters(), 0.5)
            self.optimizer.step()
            total += loss.item() * len(target)
        return total / len(self.loaders["train"].dataset)

    @torch.no_grad()
    def mae(self, split):
        self.model.eval()
        err = [(self.model(p, c) - t).abs() for p, c, t in self.loaders[split]]
        return torch.cat(err).mean().item() * self.scale

    def run(self, until, folder):
        while self.epoch < until:
            train = self.train_epoch()
            self.scheduler.step()
            val = self.mae("val")
            self.epoch += 1
            if val < self.best:
                self.best = val
                torch.save(self.model.state_dict(), os.path.join(folder, "best.pt"))
            self.save(os.path.join(folder, "last.pt"))
            print(
                f"epoch {self.epoch:2d} train {train:.4f} val MAE {val:.3f} MW lr {self.scheduler.get_last_lr()[0]:.1e}"
            )

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "epoch": self.epoch,
                "best": self.best,
                "rng": torch.get_rng_state(),
            },
            path,
        )

    def resume(self, path):
        ck = torch.load(path)
        self.model.load_state_dict(ck["model"])
        self.optimizer.load_state_dict(ck["optimizer"])
        self.scheduler.load_state_dict(ck["scheduler"])
        self.epoch, self.best = ck["epoch"], ck["best"]
        torch.set_rng_state(ck["rng"])
        print(f"resumed at epoch {self.epoch}, best {self.best:.3f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--no-amp", dest="amp", action="store_false")
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()

    table = load_curve(24 * 120, seed=0)
    cut1, cut2 = int(len(table) * 0.7), int(len(table) * 0.85)
    parts = {"train": table[:cut1], "val": table[cut1:cut2], "test": table[cut2:]}
    mu, sd = parts["train"].mean(0), parts["train"].std(0)
    mu[2:], sd[2:] = 0, 1  # calendar columns stay as they are
    loaders = {
        k: DataLoader(
            Windows((v - mu) / sd, stride=2 if k == "train" else 3),
            batch_size=32 if k == "train" else 128,
            shuffle=(k == "train"),
        )
        for k, v in parts.items()
    }

    folder = tempfile.mkdtemp(prefix="load_")
    first = Experiment(args, loaders, float(sd[0]))
    print(f"persistence + untrained: val MAE {first.mae('val'):.3f} MW")
    first.run((args.epochs + 1) // 2, folder)

    second = Experiment(args, loaders, float(sd[0]))
    second.resume(os.path.join(folder, "last.pt"))
    second.run(args.epochs, folder)
    second.model.load_state_dict(torch.load(os.path.join(folder, "best.pt")))
    print(f"test MAE {second.mae('test'):.3f} MW")


if __name__ == "__main__":
    main()
