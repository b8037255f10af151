"""Course project, week 6: hourly bike rental demand with a small MLP."""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=250)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

SEED = 2023
np.random.seed(SEED)
torch.manual_seed(SEED)

HIDDEN = 128
BATCH_SIZE = 128
LR = 3e-3
PRINT_EVERY = 25


def make_data(n=9000):
    hour = np.random.randint(0, 24, n)
    weekday = np.random.randint(0, 7, n)
    temp = 12 + 9 * np.random.randn(n)
    wind = np.abs(8 * np.random.randn(n))
    rain = (np.random.rand(n) < 0.15).astype(float)
    commute = np.exp(-((hour - 8) ** 2) / 4) + np.exp(-((hour - 17) ** 2) / 6)
    demand = (
        1.6 * commute * (weekday < 5)
        + 0.8 * np.exp(-((hour - 14) ** 2) / 20) * (weekday >= 5)
        + 0.04 * temp
        - 0.02 * wind
        - 0.7 * rain
        + 0.15 * np.random.randn(n)
    )
    features = np.stack(
        [
            np.sin(2 * math.pi * hour / 24),
            np.cos(2 * math.pi * hour / 24),
            np.sin(4 * math.pi * hour / 24),
            np.cos(4 * math.pi * hour / 24),
            (weekday >= 5).astype(float),
            temp / 10,
            wind / 10,
            rain,
        ],
        axis=1,
    )
    return features.astype(np.float32), demand.astype(np.float32)[:, None]


class DemandNet(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(n_in, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, 1),
        )

    def forward(self, x):
        return self.body(x)


def evaluate(model, loader):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for xb, yb in loader:
            total += ((model(xb) - yb) ** 2).sum().item()
            count += len(yb)
    model.train()
    return math.sqrt(total / count)


def train(model, train_loader, val_loader, optimizer, scheduler, max_steps):
    criterion = nn.MSELoss()
    step, running = 0, 0.0
    while step < max_steps:
        for xb, yb in train_loader:
            pred = model(xb)
            loss = criterion(pred, yb)
            if args.fixed:
                optimizer.zero_grad()
                loss.backward()
            else:
                loss.backward()
                optimizer.zero_grad()
            optimizer.step()
            scheduler.step()

            running += loss.item()
            step += 1
            if step % PRINT_EVERY == 0:
                print(
                    f"step {step:4d}  mse {running / PRINT_EVERY:.4f}  "
                    f"val rmse {evaluate(model, val_loader):.4f}  lr {scheduler.get_last_lr()[0]:.5f}"
                )
                running = 0.0
            if step >= max_steps:
                break


X, y = make_data()
# split first, statistics from the training part only
X_train, X_val = X[:7500], X[7500:]
y_train, y_val = y[:7500], y[7500:]
mean, std = X_train.mean(0), X_train.std(0)
X_train, X_val = (X_train - mean) / std, (X_val - mean) / std
y_mean, y_std = y_train.mean(), y_train.std()
y_train, y_val = (y_train - y_mean) / y_std, (y_val - y_mean) / y_std

train_loader = DataLoader(
    TensorDataset(torch.from_numpy(X_train), torch.from_numpy(y_train)),
    batch_size=BATCH_SIZE,
    shuffle=True,
    drop_last=True,
)
val_loader = DataLoader(
    TensorDataset(torch.from_numpy(X_val), torch.from_numpy(y_val)), batch_size=500
)

model = DemandNet(X.shape[1])
start_weights = {k: v.clone() for k, v in model.state_dict().items()}
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)

train(model, train_loader, val_loader, optimizer, scheduler, args.steps)
print(
    "final val rmse (in units of the target's std):",
    round(evaluate(model, val_loader), 4),
)

if args.prove:
    moved = max(
        (v - start_weights[k]).abs().max().item() for k, v in model.state_dict().items()
    )
    print("largest weight change over the run:", moved)
    print("fault shows:", "yes" if moved == 0.0 else "no")
