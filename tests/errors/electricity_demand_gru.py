"""Next-hour electricity demand for a handful of substations, GRU on a 48 h window.

Flat script on purpose, I run it from a notebook cell most of the time.
"""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=240)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--window", type=int, default=48)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

torch.manual_seed(11)
rng = np.random.default_rng(11)

# ---------------------------------------------------------------- data
hours = 24 * 120
n_stations = 6
t = np.arange(hours)
series = []
for s in range(n_stations):
    daily = np.sin(2 * math.pi * (t - 7 - s) / 24)
    evening = 0.5 * np.sin(4 * math.pi * (t - 18) / 24)
    weekly = 0.4 * (((t // 24) % 7) < 5)
    trend = 0.1 * t / hours
    temp = np.cumsum(rng.normal(0, 0.03, hours))
    temp = temp - np.convolve(temp, np.ones(72) / 72, mode="same")
    load = (
        3 + daily + evening + weekly + trend + 0.6 * temp + rng.normal(0, 0.08, hours)
    )
    series.append(
        np.stack(
            [load, temp, np.sin(2 * math.pi * t / 24), np.cos(2 * math.pi * t / 24)], 1
        )
    )
series = np.stack(series).astype("float32")  # station, hour, feature

split = int(hours * 0.8)
mu = series[:, :split].mean((0, 1), keepdims=True)
sd = series[:, :split].std((0, 1), keepdims=True)
series = (series - mu) / sd


def windows(block, stride):
    xs, ys = [], []
    for s in range(n_stations):
        for i in range(0, block.shape[1] - args.window - 1, stride):
            xs.append(block[s, i : i + args.window])
            ys.append(block[s, i + args.window, 0])
    return torch.tensor(np.stack(xs)), torch.tensor(np.array(ys))


x_train, y_train = windows(series[:, :split], 3)
x_test, y_test = windows(series[:, split:], 6)
print("train", tuple(x_train.shape), "test", tuple(x_test.shape))
train_loader = DataLoader(
    TensorDataset(x_train, y_train),
    batch_size=args.batch_size,
    shuffle=True,
    drop_last=True,
    generator=torch.Generator().manual_seed(5),
)


# ---------------------------------------------------------------- model
class DemandGRU(nn.Module):
    def __init__(self, n_features=4, hidden=48):
        super().__init__()
        self.gru = nn.GRU(n_features, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        out, _ = self.gru(x)
        return self.head(out[:, -1]).squeeze(-1)


model = DemandGRU()
criterion = nn.SmoothL1Loss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
    optimizer, T_max=max(args.steps, 1), eta_min=1e-5
)


def evaluate():
    model.eval()
    with torch.no_grad():
        pred = torch.cat(
            [model(x_test[i : i + 256]) for i in range(0, len(x_test), 256)]
        )
    model.train()
    err = (pred - y_test) * float(sd[0, 0, 0])
    return err.abs().mean().item(), err.pow(2).mean().sqrt().item()


# ---------------------------------------------------------------- training
step = 0
running = 0.0
last_batch = None
first_norm = None
while step < args.steps:
    for xb, yb in train_loader:
        if args.fixed:
            optimizer.zero_grad()
        pred = model(xb)
        loss = criterion(pred, yb)
        loss.backward()
        if step == args.steps - 1 and args.prove:
            # what this very batch asks for, next to what the update is about to use
            again = criterion(model(xb), yb)
            wanted = torch.autograd.grad(again, list(model.parameters()))
            used = [p.grad.clone() for p in model.parameters()]
            diff = sum((a - b).pow(2).sum() for a, b in zip(wanted, used)).sqrt().item()
            size = sum(a.pow(2).sum() for a in wanted).sqrt().item()
            last_batch = (diff, size)
        optimizer.step()
        scheduler.step()
        running += loss.item()
        step += 1
        if step % 40 == 0:
            mae, rmse = evaluate()
            print(
                f"step {step:4d}  loss {running / 40:.4f}  test mae {mae:.3f}  rmse {rmse:.3f}  "
                f"lr {scheduler.get_last_lr()[0]:.1e}"
            )
            running = 0.0
        if step >= args.steps:
            break

mae, rmse = evaluate()
print(f"final test mae {mae:.4f} rmse {rmse:.4f}")

if args.prove:
    diff, size = last_batch
    print(f"gradient of the batch {size:.4f}, distance of the used one {diff:.4f}")
    print("fault shows:", "yes" if diff > 0.01 * size else "no")
