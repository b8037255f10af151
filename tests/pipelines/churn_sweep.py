# Customer churn: small grid over learning rate, width and the way imbalance is handled.
# Selection by validation average precision, the test part is scored once at the end.
import argparse
import itertools
import json
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def seed_all(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


def customers(n=4000, seed=31):
    rng = np.random.default_rng(seed)
    tenure = rng.exponential(24, n)
    fee = rng.normal(60, 18, n)
    calls = rng.poisson(1.2, n)
    usage = rng.lognormal(2, 0.6, n)
    contract = rng.integers(0, 3, n)
    others = rng.normal(size=(n, 6))
    z = (
        -3.1
        - 0.04 * tenure
        + 0.03 * (fee - 60)
        + 0.7 * calls
        - 0.9 * (contract == 2)
        + 0.9 * (contract == 0)
        + 0.8 * np.sin(usage / 4)
        + 0.5 * others[:, 0] * others[:, 1]
    )
    churn = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(np.float32)
    x = np.column_stack(
        [np.log1p(tenure), fee, calls, np.log(usage), np.eye(3)[contract], others]
    )
    return x.astype(np.float32), churn


def stratified_split(y, fractions, seed):
    rng = np.random.default_rng(seed)
    parts = [[] for _ in fractions]
    for cls in (0, 1):
        idx = rng.permutation(np.flatnonzero(y == cls))
        cuts = (np.cumsum(fractions)[:-1] * len(idx)).astype(int)
        for part, chunk in zip(parts, np.split(idx, cuts)):
            part.extend(chunk.tolist())
    return [np.array(sorted(p)) for p in parts]


def average_precision(y, score):
    order = np.argsort(-score, kind="stable")
    y = y[order]
    precision = np.cumsum(y) / np.arange(1, len(y) + 1)
    return float((precision * y).sum() / y.sum())


def roc_auc(y, score):
    rank = np.empty(len(score))
    rank[np.argsort(score, kind="stable")] = np.arange(1, len(score) + 1)
    pos = y.sum()
    return float((rank[y == 1].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos)))


def best_f1_threshold(y, score):
    grid = np.quantile(score, np.linspace(0.5, 0.99, 50))
    f1 = []
    for t in grid:
        pred = score >= t
        f1.append(2 * (pred & (y == 1)).sum() / max(1, pred.sum() + (y == 1).sum()))
    return float(grid[int(np.argmax(f1))]), float(max(f1))


def build(width, n_in):
    return nn.Sequential(
        nn.Linear(n_in, width),
        nn.LayerNorm(width),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(width, width // 2),
        nn.ReLU(),
        nn.Linear(width // 2, 1),
        nn.Flatten(0),
    )


def scores(model, x):
    model.eval()
    with torch.no_grad():
        return model(x).numpy()


def train_one(hp, data, epochs, seed):
    seed_all(seed)
    x_tr, y_tr, x_va, y_va = data
    ds = TensorDataset(x_tr, y_tr)
    n_pos = int(y_tr.sum())
    n_neg = len(y_tr) - n_pos
    if hp["balance"] == "sampler":
        w = torch.where(y_tr == 1, 1.0 / n_pos, 1.0 / n_neg).double()
        loader = DataLoader(
            ds, batch_size=160, sampler=WeightedRandomSampler(w, num_samples=len(ds))
        )
        criterion = nn.BCEWithLogitsLoss()
    else:
        loader = DataLoader(ds, batch_size=160, shuffle=True)
        pos_weight = (
            torch.tensor((n_neg / n_pos) ** 0.5)
            if hp["balance"] == "pos_weight"
            else None
        )
        criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)

    model = build(hp["width"], x_tr.shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=hp["lr"], weight_decay=1e-2)
    best = {"ap": -1.0}
    for epoch in range(1, epochs + 1):
        model.train()
        losses = []
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
            losses.append((loss.item(), len(yb)))
        ap = average_precision(y_va, scores(model, x_va))
        if ap > best["ap"]:
            best = {
                "ap": ap,
                "epoch": epoch,
                "state": {k: v.clone() for k, v in model.state_dict().items()},
            }
        mean_loss = sum(l * n for l, n in losses) / sum(n for _, n in losses)
        print(f"    epoch {epoch} loss {mean_loss:.4f} val ap {ap:.4f}")
    model.load_state_dict(best["state"])
    return model, best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=31)
    args = parser.parse_args()

    x, y = customers(seed=args.seed)
    tr, va, te = stratified_split(y, [0.6, 0.2, 0.2], args.seed)
    mean, std = x[tr].mean(0), x[tr].std(0) + 1e-6
    z = torch.from_numpy((x - mean) / std)
    y_t = torch.from_numpy(y)
    data = (z[tr], y_t[tr], z[va], y[va])
    print(
        f"churn rate train {y[tr].mean():.3f} val {y[va].mean():.3f} test {y[te].mean():.3f}"
    )

    grid = {"lr": [1e-3, 5e-3], "width": [32, 64], "balance": ["none"]}
    candidates = [dict(zip(grid, v)) for v in itertools.product(*grid.values())]
    candidates += [
        {"lr": 5e-3, "width": 32, "balance": b} for b in ("pos_weight", "sampler")
    ]

    winner = None
    for i, hp in enumerate(candidates):
        print(f"run {i + 1}/{len(candidates)} {json.dumps(hp)}")
        model, best = train_one(hp, data, args.epochs, args.seed)
        if winner is None or best["ap"] > winner[2]["ap"]:
            winner = (hp, model, best)

    hp, model, best = winner
    threshold, f1_val = best_f1_threshold(y[va], scores(model, z[va]))
    s = scores(model, z[te])
    pred = s >= threshold
    f1_test = 2 * (pred & (y[te] == 1)).sum() / max(1, pred.sum() + (y[te] == 1).sum())
    print(
        f"chosen {json.dumps(hp)} at epoch {best['epoch']}, val ap {best['ap']:.4f} f1 {f1_val:.3f}"
    )
    print(
        f"test auc {roc_auc(y[te], s):.4f} ap {average_precision(y[te], s):.4f} f1 {f1_test:.3f}"
    )


if __name__ == "__main__":
    main()
