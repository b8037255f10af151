"""Hourly bike rental demand: LSTM encoder -> 12 hour quantile forecast.

Small grid search on the validation weeks, then the best setting is trained again on train + validation
and tested on the last weeks (once).
"""
import argparse
import itertools
import time
from dataclasses import dataclass, replace
from typing import Optional

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

HISTORY, HORIZON = 48, 12
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Trial:
    hidden: int = 32
    lr: float = 5e-3
    dropout: float = 0.0
    epochs: int = 4
    batch_size: int = 64
    seed: int = 0


def make_series(n_hours, seed=4):
    rng = np.random.default_rng(seed)
    h = np.arange(n_hours)
    hour, day = h % 24, (h // 24) % 7
    commute = np.exp(-((hour - 8) ** 2) / 4) + 1.2 * np.exp(-((hour - 17.5) ** 2) / 6)
    leisure = np.exp(-((hour - 14) ** 2) / 18)
    temp = (
        12
        + 6 * np.sin(2 * np.pi * h / (24 * 120))
        + 4 * np.sin(2 * np.pi * (hour - 9) / 24)
    )
    weather = np.zeros(n_hours)
    for i in range(1, n_hours):
        weather[i] = 0.97 * weather[i - 1] + 0.24 * rng.normal()
    mean = (
        np.where(day < 5, commute, leisure) * np.exp(0.03 * temp + 0.3 * weather) * 60
        + 5
    )
    count = rng.poisson(mean).astype(np.float32)
    calendar = np.stack(
        [
            np.sin(2 * np.pi * hour / 24),
            np.cos(2 * np.pi * hour / 24),
            (day >= 5).astype(float),
        ],
        axis=1,
    )
    return count, temp.astype(np.float32), calendar.astype(np.float32)


class Scaler:
    def __init__(self, values):
        self.mean, self.std = float(np.mean(values)), float(np.std(values))

    def __call__(self, v):
        return (v - self.mean) / self.std


class Windows(Dataset):
    """all windows which lie entirely within [begin, end)"""

    def __init__(self, target, temp, calendar, begin, end, stride):
        self.y = torch.from_numpy(target[begin:end])
        past = np.concatenate([target[:, None], temp[:, None], calendar], axis=1)[
            begin:end
        ]
        self.past = torch.from_numpy(past.astype(np.float32))
        self.future = torch.from_numpy(
            calendar[begin:end]
        )  # the calendar is known ahead, the weather is not
        self.starts = range(0, (end - begin) - HISTORY - HORIZON + 1, stride)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        m, e = s + HISTORY, s + HISTORY + HORIZON
        return self.past[s:m], self.future[m:e], self.y[m:e]


class Forecaster(nn.Module):
    def __init__(self, n_past, n_future, hidden, dropout):
        super().__init__()
        self.lstm = nn.LSTM(n_past, hidden, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(hidden + n_future + HORIZON + 1, 48),
            nn.ReLU(),
            nn.Linear(48, len(QUANTILES)),
        )
        self.register_buffer("steps", torch.eye(HORIZON))
        for name, p in self.lstm.named_parameters():
            if name.startswith("bias_ih"):  # forget gate starts open
                nn.init.zeros_(p)
                with torch.no_grad():
                    p[hidden : 2 * hidden] = 1.0

    def forward(self, past, future):
        _, (h, _) = self.lstm(past)
        h = h[-1][:, None].expand(-1, HORIZON, -1)
        pos = self.steps.expand(len(past), -1, -1)
        yesterday = past[:, -24 : -24 + HORIZON, :1]  # same hour of the day before
        return self.mlp(torch.cat([h, future, pos, yesterday], dim=-1))


class PinballLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("q", torch.tensor(QUANTILES))

    def forward(self, pred, y):
        diff = y.unsqueeze(-1) - pred
        return torch.maximum(self.q * diff, (self.q - 1) * diff).mean()


def evaluate(model, loader, loss_fn):
    model.eval()
    loss, mae, inside, n = 0.0, 0.0, 0.0, 0
    with torch.no_grad():
        for past, future, y in loader:
            pred = model(past, future)
            loss += loss_fn(pred, y).item() * len(y)
            mae += (pred[..., 1] - y).abs().mean().item() * len(y)
            inside += (
                (y >= pred[..., 0]) & (y <= pred[..., 2])
            ).float().mean().item() * len(y)
            n += len(y)
    return {"pinball": loss / n, "mae": mae / n, "coverage": inside / n}


def fit(
    trial: Trial, train_set: Dataset, valid_set: Optional[Dataset] = None, verbose=False
):
    torch.manual_seed(trial.seed)
    loader = DataLoader(train_set, batch_size=trial.batch_size, shuffle=True)
    valid = DataLoader(valid_set, batch_size=256) if valid_set is not None else None
    model = Forecaster(5, 3, trial.hidden, trial.dropout)
    loss_fn = PinballLoss()
    optimizer = torch.optim.NAdam(
        model.parameters(), lr=trial.lr, weight_decay=1e-4, decoupled_weight_decay=True
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, trial.epochs * len(loader), eta_min=1e-4
    )

    for epoch in range(trial.epochs):
        model.train()
        total = 0.0
        for past, future, y in loader:
            loss = loss_fn(model(past, future), y)
            model.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(
                model.lstm.parameters(), 1.0
            )  # only the recurrent part explodes
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(y)
        if verbose:
            print(f"    epoch {epoch + 1}: pinball {total / len(train_set):.4f}")
    return model, (evaluate(model, valid, loss_fn) if valid is not None else None)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4, help="epochs of each trial")
    ap.add_argument("--weeks", type=int, default=20)
    args = ap.parse_args()

    count, temp, calendar = make_series(args.weeks * 168)
    cut_valid, cut_test = (args.weeks - 5) * 168, (args.weeks - 3) * 168
    target = np.log1p(count)
    ty, tt = Scaler(target[:cut_valid]), Scaler(temp[:cut_valid])
    target, temp = ty(target).astype(np.float32), tt(temp).astype(np.float32)

    def windows(begin, end, stride):
        return Windows(target, temp, calendar, begin, end, stride)

    train_set, valid_set = windows(0, cut_valid, 2), windows(cut_valid, cut_test, 3)
    print(f"{len(train_set)} training and {len(valid_set)} validation windows")

    results = []
    base = Trial(epochs=args.epochs)
    for hidden, lr in itertools.product((16, 40), (4e-3, 1.2e-2)):
        trial = replace(base, hidden=hidden, lr=lr, dropout=0.1 if hidden > 32 else 0.0)
        t0 = time.time()
        _, score = fit(trial, train_set, valid_set)
        results.append((score["pinball"], trial))
        print(
            f"hidden {hidden:3d} lr {lr:.1e}: "
            + " ".join(f"{k} {v:.3f}" for k, v in score.items())
            + f" ({time.time() - t0:.1f}s)"
        )

    best = min(results, key=lambda r: r[0])[1]
    print("best:", best)
    model, _ = fit(replace(best, seed=1), windows(0, cut_test, 2), verbose=True)
    test_loader = DataLoader(windows(cut_test, len(count), 3), batch_size=256)
    score = evaluate(model, test_loader, PinballLoss())
    print("test " + " ".join(f"{k} {v:.3f}" for k, v in score.items()))

    # same hour of the day before, as the reference
    naive = np.mean(
        [
            (past[-24 : -24 + HORIZON, 0] - y).abs().mean().item()
            for past, _, y in test_loader.dataset
        ]
    )
    print(f"naive mae {naive:.3f}")


if __name__ == "__main__":
    main()
