"""Day-ahead load forecasting with a GRU.

The job is killed every now and then on our cluster, so everything goes into the
checkpoint. Without --ckpt the script plays this through by itself: it trains half
of the epochs, forgets everything, and resumes from the file.
"""
import argparse
import os
import random
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HISTORY, HORIZON = 72, 24


def make_series(hours=24 * 7 * 20, seed=8):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    temp = (
        12
        + 8 * np.sin(2 * np.pi * t / (24 * 140))
        + 4 * np.sin(2 * np.pi * (t - 9) / 24)
        + np.cumsum(rng.normal(0, 0.05, hours))
    )
    weekend = ((t // 24) % 7 >= 5).astype(float)
    daily = np.sin(2 * np.pi * (t - 7) / 24) + 0.5 * np.sin(4 * np.pi * (t - 3) / 24)
    load = (
        300
        + 60 * daily * (1 - 0.4 * weekend)
        - 30 * weekend
        + 3 * np.maximum(0, 15 - temp)
        + rng.normal(0, 6, hours)
    )
    hour = 2 * np.pi * (t % 24) / 24
    return load, np.stack([temp, weekend, np.sin(hour), np.cos(hour)], 1)


class Windows(Dataset):
    """Past load + covariates, and the covariates of the coming day (calendar, weather forecast)."""

    def __init__(self, load, cov, start, stop, stride=1):
        self.load = torch.tensor(load, dtype=torch.float32)
        self.cov = torch.tensor(cov, dtype=torch.float32)
        self.origins = list(range(start + HISTORY, stop - HORIZON + 1, stride))

    def __len__(self):
        return len(self.origins)

    def __getitem__(self, i):
        o = self.origins[i]
        past = torch.cat(
            [self.load[o - HISTORY : o, None], self.cov[o - HISTORY : o]], 1
        )
        return past, self.cov[o : o + HORIZON], self.load[o : o + HORIZON]


class Forecaster(nn.Module):
    def __init__(self, n_cov=4, hidden=40):
        super().__init__()
        self.encoder = nn.GRU(1 + n_cov, hidden, batch_first=True)
        self.decoder = nn.GRU(n_cov, hidden, batch_first=True)
        self.out = nn.Sequential(nn.Dropout(0.1), nn.Linear(hidden, 1))

    def forward(self, past, future_cov):
        _, h = self.encoder(past)
        y, _ = self.decoder(future_cov, h)
        # difference to the same hour of yesterday
        return past[:, -HORIZON:, 0] + self.out(y).squeeze(-1)


class Job:
    def __init__(self, args, path):
        self.args, self.path = args, path
        torch.manual_seed(args.seed)
        np.random.seed(args.seed)
        random.seed(args.seed)
        load, cov = make_series()
        n = len(load)
        cut1, cut2 = int(n * 0.7), int(n * 0.85)
        self.mu, self.sd = load[:cut1].mean(), load[:cut1].std()
        load = (load - self.mu) / self.sd
        cov = (cov - cov[:cut1].mean(0)) / cov[:cut1].std(0)
        self.gen = torch.Generator().manual_seed(args.seed)
        self.train_loader = DataLoader(
            Windows(load, cov, 0, cut1, 2),
            args.batch_size,
            shuffle=True,
            generator=self.gen,
        )
        self.val_loader = DataLoader(Windows(load, cov, cut1, cut2, 3), 128)
        self.test_loader = DataLoader(Windows(load, cov, cut2, n, 24), 128)
        self.model = Forecaster()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(
            self.optimizer,
            [max(1, int(args.epochs * 0.6)), max(1, int(args.epochs * 0.85))],
            gamma=0.3,
        )
        self.loss_fn = nn.SmoothL1Loss(beta=0.5)
        self.epoch, self.best, self.best_model = 0, float("inf"), None

    def save(self):
        tmp = self.path + ".tmp"
        torch.save(
            {
                "epoch": self.epoch,
                "best": self.best,
                "best_model": self.best_model,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "rng": torch.get_rng_state(),
                "loader_rng": self.gen.get_state(),
            },
            tmp,
        )
        os.replace(tmp, self.path)

    def resume(self):
        if not os.path.exists(self.path):
            return
        c = torch.load(self.path, map_location="cpu")
        self.epoch, self.best, self.best_model = c["epoch"], c["best"], c["best_model"]
        self.model.load_state_dict(c["model"])
        self.optimizer.load_state_dict(c["optimizer"])
        self.scheduler.load_state_dict(c["scheduler"])
        torch.set_rng_state(c["rng"])
        self.gen.set_state(c["loader_rng"])
        print(f"resumed after epoch {self.epoch}")

    @torch.no_grad()
    def mae(self, loader):
        """in MW"""
        self.model.eval()
        err, n = 0.0, 0
        for past, cov, y in loader:
            err += (self.model(past, cov) - y).abs().sum().item()
            n += y.numel()
        return float(err / n * self.sd)

    def run(self, until):
        while self.epoch < until:
            self.model.train()
            total = 0.0
            for past, cov, y in self.train_loader:
                loss = self.loss_fn(self.model(past, cov), y)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                total += loss.item() * len(y)
            val = self.mae(self.val_loader)
            lr = self.optimizer.param_groups[0]["lr"]
            self.scheduler.step()
            self.epoch += 1
            if val < self.best:
                self.best = val
                self.best_model = {
                    k: v.clone() for k, v in self.model.state_dict().items()
                }
            print(
                f"epoch {self.epoch:2d} loss {total / len(self.train_loader.dataset):.4f} val MAE {val:.2f} MW lr {lr:.1e}"
            )
            self.save()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=17)
    ap.add_argument("--ckpt", default=None)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        path = args.ckpt or os.path.join(tmp, "load.pt")
        if args.ckpt is None:
            Job(args, path).run(until=max(1, args.epochs // 2))
        job = Job(args, path)
        job.resume()
        job.run(until=args.epochs)
        job.model.load_state_dict(job.best_model)
        print(
            f"best val MAE {job.best:.2f} MW, test MAE {job.mae(job.test_loader):.2f} MW"
        )


if __name__ == "__main__":
    main()
