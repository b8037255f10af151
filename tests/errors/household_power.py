import argparse
import os
import shutil
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

# 24 half hours of household power -> the next 4. LSTM encoder with a linear head.
HISTORY, HORIZON = 24, 4


def power_series(days=24, seed=5):
    rng = np.random.default_rng(seed)
    t = np.arange(days * 48)
    daily = 1.2 * np.sin(2 * np.pi * t / 48 - 1.3) + 0.6 * np.sin(4 * np.pi * t / 48)
    weekly = 0.4 * ((t // 48) % 7 >= 5)
    ar = np.zeros(len(t))
    for i in range(1, len(t)):
        ar[i] = 0.85 * ar[i - 1] + 0.2 * rng.standard_normal()
    return (3.0 + daily + weekly + ar).astype(np.float32)


def windows(series):
    n = len(series) - HISTORY - HORIZON + 1
    idx = np.arange(n)[:, None]
    x = series[idx + np.arange(HISTORY)]
    y = series[idx + HISTORY + np.arange(HORIZON)]
    return TensorDataset(torch.from_numpy(x).unsqueeze(-1), torch.from_numpy(y))


class EarlyStopping:
    """Stops the training when the validation loss hasn't got better for `patience` checks."""

    def __init__(self, path, patience=7, delta=0.0, fixed=False):
        self.path = path
        self.patience = patience
        self.delta = delta
        self.fixed = fixed
        self.counter = 0
        self.best_score = None
        self.early_stop = False

    def __call__(self, val_loss, model):
        score = val_loss
        if self.fixed:
            score = -val_loss
        if self.best_score is None or score >= self.best_score + self.delta:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
            self.counter = 0
        else:
            self.counter += 1
            print(f"  EarlyStopping counter: {self.counter} out of {self.patience}")
            if self.counter >= self.patience:
                self.early_stop = True

    def save_checkpoint(self, val_loss, model):
        torch.save({"model": model.state_dict(), "val_loss": val_loss}, self.path)


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, HORIZON)
        )

    def forward(self, x):
        out, _ = self.lstm(x)
        return x[:, -1] + self.head(out[:, -1])


def mean_loss(model, loader, loss_fn):
    model.eval()
    total, n = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            total += loss_fn(model(x), y).item() * len(x)
            n += len(x)
    model.train()
    return total / n


def main(args):
    torch.manual_seed(0)
    series = power_series()
    cut1, cut2 = int(0.7 * len(series)), int(0.85 * len(series))
    mu, sd = series[:cut1].mean(), series[:cut1].std()
    series = (series - mu) / sd
    train_loader = DataLoader(windows(series[:cut1]), batch_size=64, shuffle=True)
    val_loader = DataLoader(windows(series[cut1:cut2]), batch_size=128)
    test_loader = DataLoader(windows(series[cut2:]), batch_size=128)

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_fn = nn.SmoothL1Loss()
    workdir = tempfile.mkdtemp()
    checkpoint = os.path.join(workdir, "checkpoint.pt")
    stopper = EarlyStopping(checkpoint, patience=7, fixed=args.fixed)

    step = epoch = 0
    val_history = []
    while step < args.steps and not stopper.early_stop:
        train_losses = []
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            train_losses.append(loss.item())
            step += 1
            if step >= args.steps:
                break
        val_history.append(mean_loss(model, val_loader, loss_fn))
        print(
            f"Epoch {epoch:02d} step {step:03d} train {np.mean(train_losses):.5f} val {val_history[-1]:.5f}"
        )
        stopper(val_history[-1], model)
        epoch += 1

    # back to the best weights
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    print(
        f"test loss {mean_loss(model, test_loader, loss_fn):.5f} after {epoch} epochs"
    )
    shutil.rmtree(workdir)

    if args.prove:
        lowest = min(val_history)
        print(
            f"# validation loss of the restored weights {saved['val_loss']:.5f}, lowest seen {lowest:.5f}"
        )
        print("fault shows:", "yes" if saved["val_loss"] > lowest + 1e-6 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    main(parser.parse_args())
