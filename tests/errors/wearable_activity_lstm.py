"""Human activity recognition from a wrist sensor (3 axes accelerometer, 25 Hz windows), LSTM."""
import argparse
import json
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACTIVITIES = ["sit", "walk", "run", "stairs", "cycle"]
WINDOW = 50


def window(kind, rng):
    t = np.arange(WINDOW) / 25.0
    phase = rng.uniform(0, 2 * np.pi)
    gravity = rng.normal(0, 0.3, 3) + np.array([0.0, 0.2, 0.9])
    x = np.tile(gravity, (WINDOW, 1))
    if kind == 1:
        f, amp = rng.uniform(1.6, 2.1), np.array([0.25, 0.15, 0.35])
    elif kind == 2:
        f, amp = rng.uniform(2.5, 3.1), np.array([0.6, 0.4, 0.9])
    elif kind == 3:
        f, amp = rng.uniform(1.1, 1.5), np.array([0.3, 0.3, 0.3])
    elif kind == 4:
        f, amp = rng.uniform(0.9, 1.4), np.array([0.12, 0.35, 0.1])
    else:
        f, amp = 0.3, np.array([0.03, 0.03, 0.03])
    amp = amp * rng.uniform(0.7, 1.3)
    for a in range(3):
        x[:, a] += amp[a] * np.sin(2 * np.pi * f * t + phase + a)
    if kind in (1, 2):
        x[:, 2] += 0.4 * amp[2] * np.sin(4 * np.pi * f * t + phase)
    return x + rng.normal(0, 0.12, x.shape)


def load(n, seed):
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, len(ACTIVITIES), n)
    data = np.stack([window(k, rng) for k in labels])
    return data.astype(np.float32), labels.astype(np.int64)


class ActivityLSTM(nn.Module):
    def __init__(self, n_features, hidden, n_classes, fixed):
        super().__init__()
        self.inp = nn.Linear(n_features, hidden)
        if fixed:
            self.lstm = nn.LSTM(hidden, hidden, num_layers=1, batch_first=True)
        else:
            self.lstm = nn.LSTM(hidden, hidden, num_layers=1)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(hidden, n_classes)

    def forward(self, x):
        # x: (batch, time, features)
        h = torch.relu(self.inp(x))
        h, _ = self.lstm(h)
        return self.out(self.drop(h[:, -1]))


def evaluate(model, loader):
    model.eval()
    hits = np.zeros(len(ACTIVITIES))
    counts = np.zeros(len(ACTIVITIES))
    with torch.no_grad():
        for x, y in loader:
            p = model(x).argmax(1)
            for k in range(len(ACTIVITIES)):
                hits[k] += ((p == k) & (y == k)).sum().item()
                counts[k] += (y == k).sum().item()
    model.train()
    return hits / np.maximum(counts, 1)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--hidden", type=int, default=48)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


def make_loaders(batch):
    x_train, y_train = load(1280, 10)
    x_val, y_val = load(400, 11)
    mean, std = x_train.mean((0, 1)), x_train.std((0, 1))
    x_train, x_val = (x_train - mean) / std, (x_val - mean) / std
    train = DataLoader(
        TensorDataset(torch.from_numpy(x_train), torch.from_numpy(y_train)),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
    )
    val = DataLoader(
        TensorDataset(torch.from_numpy(x_val), torch.from_numpy(y_val)), batch_size=100
    )
    return train, val


def prove(model, x):
    model.eval()
    with torch.no_grad():
        full = model(x)
        cut = x.clone()
        cut[:, : WINDOW // 2] = 0
        other = x.clone()
        other[0] = 1.0
        d_time = (model(cut) - full).abs().max().item()
        d_batch = (model(other)[1:] - full[1:]).abs().max().item()
    print(
        f"outputs change by {d_time:.4f} with the first second blanked, "
        f"by {d_batch:.4f} with another window of the batch replaced"
    )
    print("fault shows:", "yes" if d_time < 1e-6 and d_batch > 1e-6 else "no")


def main():
    args = parse()
    torch.manual_seed(args.seed)
    train, val = make_loaders(args.batch)

    model = ActivityLSTM(3, args.hidden, len(ACTIVITIES), args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()

    start = time.time()
    step, losses = 0, []
    while step < args.steps:
        for x, y in train:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            losses.append(loss.item())
            step += 1
            if step == args.steps:
                break
        acc = evaluate(model, val)
        print(
            json.dumps(
                {
                    "step": step,
                    "loss": round(float(np.mean(losses[-len(train) :])), 4),
                    "acc": round(float(acc.mean()), 4),
                }
            )
        )
    print(
        "per class:",
        ", ".join(f"{n} {a:.2f}" for n, a in zip(ACTIVITIES, evaluate(model, val))),
    )
    print(f"{time.time() - start:.1f} s", file=sys.stderr)

    if args.prove:
        prove(model, val.dataset.tensors[0][:8])


if __name__ == "__main__":
    main()
