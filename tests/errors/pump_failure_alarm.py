#!/usr/bin/env python
# Early warning of pump failures from a day of plant readings.
import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES = [
    "vib_rms",
    "vib_kurt",
    "inlet_p",
    "outlet_p",
    "flow",
    "temp_bearing",
    "temp_motor",
    "current",
    "rpm",
    "age_days",
    "last_service",
    "humidity",
]


def plant_history(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(FEATURES))).astype("float32")
    x[:, 6] = 0.7 * x[:, 5] + 0.5 * x[:, 6]
    x[:, 3] = 0.8 * x[:, 2] + 0.4 * x[:, 3]
    score = (
        1.3 * x[:, 0]
        + 0.9 * np.maximum(x[:, 5], 0) * x[:, 7]
        + 0.8 * np.abs(x[:, 3] - x[:, 2])
        + 0.6 * x[:, 9]
        - 0.5 * x[:, 4]
    )
    p = 1.0 / (1.0 + np.exp(-(1.6 * score - 5.6)))
    y = (rng.random(n) < p).astype("float32")
    return torch.from_numpy(x), torch.from_numpy(y)


class AlarmNet(nn.Module):
    def __init__(self, d_in, width=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(d_in, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def class_balance(y, fixed=False):
    n_pos = y.sum()
    n_neg = y.numel() - n_pos
    if fixed:
        return n_neg / n_pos
    return n_pos / n_neg


@torch.no_grad()
def evaluate(model, x, y, threshold=0.5):
    model.eval()
    prob = torch.sigmoid(model(x))
    alarm = prob > threshold
    tp = (alarm & (y == 1)).sum().item()
    fp = (alarm & (y == 0)).sum().item()
    fn = (~alarm & (y == 1)).sum().item()
    recall = tp / max(tp + fn, 1)
    precision = tp / max(tp + fp, 1)
    tn = len(y) - tp - fp - fn
    balanced = 0.5 * (recall + tn / max(tn + fp, 1))
    return {
        "acc": (tp + tn) / len(y),
        "recall": recall,
        "precision": precision,
        "balanced_acc": balanced,
    }


def cosine(step, total):
    return 0.5 * (1 + math.cos(math.pi * step / max(total, 1)))


def train(args):
    torch.manual_seed(args.seed)
    x, y = plant_history(5000, seed=4)
    xv, yv = plant_history(2500, seed=5)
    mean, std = x.mean(0), x.std(0)
    x, xv = (x - mean) / std, (xv - mean) / std

    loader = DataLoader(
        TensorDataset(x, y),
        batch_size=args.batch,
        shuffle=True,
        generator=torch.Generator().manual_seed(args.seed),
    )
    model = AlarmNet(x.shape[1])
    criterion = nn.BCEWithLogitsLoss(pos_weight=class_balance(y, args.fixed))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    total = args.epochs * len(loader)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: cosine(s, total))
    print(f"{len(y)} days, {int(y.sum())} with a failure the day after")

    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for xb, yb in loader:
            loss = criterion(model(xb), yb)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item() * len(yb)
        m = evaluate(model, xv, yv)
        print(
            f"epoch {epoch:2d}  loss {running / len(y):.4f}  "
            + "  ".join(f"{k} {v:.3f}" for k, v in m.items())
        )
    return model, criterion, (x, y)


def effect(model, criterion, data):
    """Share of the total training gradient on the output that comes from failure days."""
    x, y = data
    fresh = torch.zeros(len(y), requires_grad=True)
    criterion(fresh, y).backward()
    g_pos = fresh.grad[y == 1].abs().sum().item()
    g_neg = fresh.grad[y == 0].abs().sum().item()
    share = g_pos / (g_pos + g_neg)
    print(
        f"pull of the failure days at an undecided output: {share:.4f} (balanced: 0.5)"
    )
    return abs(share - 0.5) > 0.05


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    out = train(args)
    if args.prove:
        print("fault shows: " + ("yes" if effect(*out) else "no"))


if __name__ == "__main__":
    main()
