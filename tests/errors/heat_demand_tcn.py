"""District heating: forecast the demand of the next 12 hours from the last 72 hours (temporal conv net)."""
import argparse
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Cfg:
    steps: int = 220
    history: int = 72
    horizon: int = 12
    channels: int = 24
    batch: int = 64
    lr: float = 2e-3
    seed: int = 404
    train_share: float = 0.75
    dilations: tuple = field(default=(1, 2, 4, 8, 16))


def plant(hours, seed):
    """columns: demand, outside temperature, wind, hour of day (sin, cos), weekend"""
    rng = np.random.default_rng(seed)
    h = np.arange(hours)
    # the winter comes at the end of the record
    season = 12 - 16 * h / hours
    weather = np.zeros(hours)
    for i in range(1, hours):
        weather[i] = 0.985 * weather[i - 1] + rng.normal(0, 0.5)
    temp = season + weather + 3 * np.sin(2 * np.pi * (h - 9) / 24)
    wind = np.abs(rng.normal(4, 2, hours))
    weekend = ((h // 24) % 7 >= 5).astype(float)
    use = (
        1
        + 0.25 * np.sin(2 * np.pi * (h - 6) / 24)
        + 0.15 * np.sin(4 * np.pi * h / 24)
        - 0.1 * weekend
    )
    demand = (
        np.maximum(0, 17 - temp) * (1 + 0.02 * wind) * use
        + 3
        + rng.normal(0, 0.5, hours)
    )
    return np.stack(
        [
            demand,
            temp,
            wind,
            np.sin(2 * np.pi * h / 24),
            np.cos(2 * np.pi * h / 24),
            weekend,
        ],
        axis=1,
    ).astype(np.float32)


class StandardScaler:
    def fit(self, x):
        self.mean_ = x.mean(axis=0)
        self.scale_ = x.std(axis=0) + 1e-8
        return self

    def transform(self, x):
        return (x - self.mean_) / self.scale_


def windows(series, cfg):
    x, y = [], []
    for i in range(len(series) - cfg.history - cfg.horizon + 1):
        x.append(series[i : i + cfg.history].T)
        y.append(series[i + cfg.history : i + cfg.history + cfg.horizon, 0])
    return torch.from_numpy(np.stack(x).astype(np.float32)), torch.from_numpy(
        np.stack(y).astype(np.float32)
    )


class CausalConv(nn.Module):
    def __init__(self, c, dilation, k=3):
        super().__init__()
        self.pad = (k - 1) * dilation
        self.conv = nn.Conv1d(c, 2 * c, k, dilation=dilation)
        self.mix = nn.Conv1d(c, c, 1)

    def forward(self, x):
        a, b = self.conv(nn.functional.pad(x, (self.pad, 0))).chunk(2, dim=1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))


class TCN(nn.Module):
    def __init__(self, features, cfg):
        super().__init__()
        self.inp = nn.Conv1d(features, cfg.channels, 1)
        self.blocks = nn.Sequential(
            *[CausalConv(cfg.channels, d) for d in cfg.dilations]
        )
        self.out = nn.Linear(cfg.channels, cfg.horizon)

    def forward(self, x):
        return x[:, 0, -1:] + self.out(self.blocks(self.inp(x))[..., -1])


def prepare(cfg, fixed):
    raw = plant(24 * 90, cfg.seed)
    cut = int(len(raw) * cfg.train_share)
    fit_on = raw
    if fixed:
        fit_on = raw[:cut]
    scaler = StandardScaler().fit(fit_on)
    scaled = scaler.transform(raw)
    return (
        windows(scaled[:cut], cfg),
        windows(scaled[cut - cfg.history :], cfg),
        scaler,
        raw[:cut],
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=Cfg.steps)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    a = p.parse_args()
    cfg = Cfg(steps=a.steps)
    torch.manual_seed(cfg.seed)

    (xtr, ytr), (xte, yte), scaler, raw_train = prepare(cfg, a.fixed)
    print(
        f"train windows {len(xtr)}, test windows {len(xte)}, demand mean {scaler.mean_[0]:.2f} scale {scaler.scale_[0]:.2f}"
    )

    model = TCN(xtr.shape[1], cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=cfg.lr, total_steps=cfg.steps
    )
    loss_fn = nn.HuberLoss()
    step = 0
    while step < cfg.steps:
        model.train()
        for idx in torch.randperm(len(xtr)).split(cfg.batch):
            loss = loss_fn(model(xtr[idx]), ytr[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            if step >= cfg.steps:
                break
        model.eval()
        with torch.no_grad():
            pred = torch.cat([model(b) for b in xte.split(128)])
        mae = (pred - yte).abs().mean().item() * scaler.scale_[0]
        print(f"step {step:4d} loss {loss.item():.4f} test MAE {mae:.3f} MW")

    naive = (
        xte[:, 0, -24 : -24 + cfg.horizon] - yte
    ).abs().mean().item() * scaler.scale_[0]
    print(f"naive (same hour yesterday) MAE {naive:.3f} MW")

    if a.prove:
        diff = np.abs(scaler.mean_ - raw_train.mean(axis=0)).max()
        print(f"scaler mean minus mean of the training period, largest: {diff:.4f}")
        print("fault shows:", "yes" if diff > 1e-4 else "no")


if __name__ == "__main__":
    main()
