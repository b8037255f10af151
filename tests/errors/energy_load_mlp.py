#!/usr/bin/env python
# coding: utf-8
"""Hourly energy load of a district from weather and calendar features.

Exported from the notebook `03_mlp_baseline.ipynb`. Train on the first years,
test on the last one. Residual MLP with EMA weights.
"""
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

# In[1]: arguments
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch_size", type=int, default=128)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--ema", type=float, default=0.98)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(args.seed)
np.random.seed(args.seed)

# In[2]: made-up data, three years, every second hour
HOURS = np.arange(0, 3 * 365 * 24, 2)
day_of_year = (HOURS // 24) % 365
hour_of_day = HOURS % 24
weekend = ((HOURS // 24) % 7 >= 5).astype(float)
season = np.cos(2 * np.pi * (day_of_year - 20) / 365)

rng = np.random.default_rng(args.seed)
temperature = (
    10
    - 11 * season
    + 4 * np.sin(2 * np.pi * (hour_of_day - 9) / 24)
    + rng.normal(0, 2.5, len(HOURS))
)
wind = rng.gamma(2.0, 2.0, len(HOURS))
solar = (
    np.clip(np.sin(np.pi * (hour_of_day - 6) / 12), 0, None)
    * (1 - 0.5 * season)
    * rng.uniform(0.3, 1, len(HOURS))
)
# the district grows, new customers arrive in the last year
customers = (
    1000
    + 0.01 * HOURS
    + np.where(HOURS > 2 * 365 * 24, 0.05 * (HOURS - 2 * 365 * 24), 0)
)
price = (
    40
    + 6 * season
    + rng.normal(0, 4, len(HOURS))
    + np.where(HOURS > 2 * 365 * 24, 25, 0)
)

load = (
    0.5 * customers / 1000
    + 0.35 * np.clip(15 - temperature, 0, None) / 10
    + 0.2 * np.clip(temperature - 22, 0, None) / 10
    + 0.25 * np.sin(2 * np.pi * (hour_of_day - 8) / 24) * (1 - 0.6 * weekend)
    - 0.2 * solar
    - 0.002 * price
    + 0.01 * wind
    + rng.normal(0, 0.05, len(HOURS))
)
load = load * 100  # MW

numeric = np.stack([temperature, wind, solar, customers, price], axis=1)
calendar = np.stack(
    [
        np.sin(2 * np.pi * hour_of_day / 24),
        np.cos(2 * np.pi * hour_of_day / 24),
        np.sin(2 * np.pi * day_of_year / 365),
        np.cos(2 * np.pi * day_of_year / 365),
        weekend,
    ],
    axis=1,
)

# In[3]: split by time, scale
is_train = HOURS < int(1.8 * 365 * 24)
is_val = (~is_train) & (HOURS < 2 * 365 * 24)
is_test = HOURS >= 2 * 365 * 24


class Scaler:
    def fit(self, a):
        self.mean = a.mean(axis=0)
        self.std = a.std(axis=0) + 1e-8
        return self

    def transform(self, a):
        return (a - self.mean) / self.std

    def inverse(self, a):
        return a * self.std + self.mean


fit_rows = np.ones(len(HOURS), dtype=bool)
if args.fixed:
    fit_rows = is_train
x_scaler = Scaler().fit(numeric[fit_rows])
y_scaler = Scaler().fit(load[fit_rows])

X = np.concatenate([x_scaler.transform(numeric), calendar], axis=1).astype(np.float32)
Y = y_scaler.transform(load).astype(np.float32)
parts = {
    name: (torch.from_numpy(X[m]), torch.from_numpy(Y[m]))
    for name, m in [("train", is_train), ("val", is_val), ("test", is_test)]
}
print({k: tuple(v[0].shape) for k, v in parts.items()})


# In[4]: model
class ResidualMLP(nn.Module):
    def __init__(self, n_in, width=96, depth=3, p=0.05):
        super().__init__()
        self.inp = nn.Linear(n_in, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, width),
                nn.GELU(),
                nn.Dropout(p),
                nn.Linear(width, width),
            )
            for _ in range(depth)
        )
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out(F.gelu(h)).squeeze(-1)


model = ResidualMLP(X.shape[1])
ema_model = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)


def mae_mw(net, part):
    net.eval()
    with torch.no_grad():
        x, y = parts[part]
        pred = y_scaler.inverse(net(x).numpy())
        true = y_scaler.inverse(y.numpy())
    net.train()
    return float(np.abs(pred - true).mean())


# In[5]: training
x_train, y_train = parts["train"]
step = 0
while step < args.steps:
    for idx in torch.randperm(len(x_train)).split(args.batch_size):
        if len(idx) < args.batch_size or step >= args.steps:
            break
        loss = F.huber_loss(model(x_train[idx]), y_train[idx], delta=1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for e, p in zip(ema_model.parameters(), model.parameters()):
                e.lerp_(p, 1 - args.ema)
        step += 1
        if step % 50 == 0 or step == args.steps:
            print(
                f"step {step:4d}  huber {loss.item():.4f}  val MAE {mae_mw(ema_model, 'val'):.2f} MW"
            )

# In[6]: test
print(f"test MAE {mae_mw(ema_model, 'test'):.2f} MW")

if args.prove:
    offset = np.abs(numeric[is_train].mean(0) - x_scaler.mean) / numeric[is_train].std(
        0
    )
    print("fault shows:", "yes" if offset.max() > 0.05 else "no")
