"""Compressive strength of concrete from the mix and the age."""
import argparse

import numpy as np
import torch
from torch import nn

COLUMNS = ["cement", "slag", "ash", "water", "plasticizer", "coarse", "fine", "age"]


def mixes(n, seed):
    rng = np.random.default_rng(seed)
    lo = np.array([100, 0, 0, 120, 0, 800, 600, 1])
    hi = np.array([540, 350, 200, 250, 32, 1150, 990, 365])
    x = rng.uniform(lo, hi, size=(n, 8))
    binder = x[:, 0] + 0.6 * x[:, 1] + 0.3 * x[:, 2]
    strength = 14 * np.log1p(x[:, 7]) / 4 * (binder / x[:, 3]) ** 0.9 + 0.25 * x[:, 4]
    strength += rng.normal(0, 2.0, n)
    return x.astype(np.float32), strength.astype(np.float32)


class Standardiser:
    def __init__(self, x):
        self.mean, self.std = x.mean(0), x.std(0)

    def __call__(self, x):
        return (x - self.mean) / self.std


def build_model(hidden):
    return nn.Sequential(
        nn.Linear(len(COLUMNS), hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 1),
    )


def squared_error(pred, target):
    return ((pred - target) ** 2).mean()


def batches(x, y, size, gen):
    order = torch.randperm(len(x), generator=gen)
    for i in range(0, len(x) - size + 1, size):
        take = order[i : i + size]
        yield x[take], y[take]


@torch.no_grad()
def score(model, x, y):
    p = model(x).flatten().numpy()
    t = y.flatten().numpy()
    mae = np.abs(p - t).mean()
    r2 = 1 - ((p - t) ** 2).sum() / ((t - t.mean()) ** 2).sum()
    return mae, r2


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=30)
    ap.add_argument("--batch", type=int, default=50)
    ap.add_argument("--hidden", type=int, default=64)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(2)

    raw_x, raw_y = mixes(1000, 10)
    raw_xt, raw_yt = mixes(300, 20)
    scale = Standardiser(raw_x)
    x, xt = torch.from_numpy(scale(raw_x)), torch.from_numpy(scale(raw_xt))
    y, yt = torch.from_numpy(raw_y), torch.from_numpy(raw_yt)
    if args.fixed:
        y, yt = y.unsqueeze(1), yt.unsqueeze(1)

    model = build_model(args.hidden)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.StepLR(opt, step_size=15, gamma=0.5)

    for epoch in range(args.epochs):
        losses = []
        for xb, yb in batches(x, y, args.batch, gen):
            opt.zero_grad()
            loss = squared_error(model(xb), yb)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        sched.step()
        if epoch % 3 == 0 or epoch == args.epochs - 1:
            mae, r2 = score(model, xt, yt)
            print(
                f"epoch {epoch:3d}  loss {np.mean(losses):9.3f}  test MAE {mae:6.2f} MPa  R2 {r2:6.3f}"
            )

    if args.prove:
        with torch.no_grad():
            pred = model(x[:50])
            used = squared_error(pred, y[:50]).item()
            terms = (pred - y[:50]).numel()
            direct = float(np.mean((pred.flatten().numpy() - raw_y[:50]) ** 2))
        print(
            f"loss {used:.3f} over {terms} terms for 50 mixes; row by row {direct:.3f}"
        )
        print("fault shows:", "yes" if abs(used - direct) > 1e-3 * direct else "no")


if __name__ == "__main__":
    main()
