"""Claim frequency model for a small motor insurer.

The table has a handful of numeric rating factors, the vehicle brand and the garage
that did the last inspection.  There are several hundred garages, so that column goes in
as a smoothed mean of the claim flag; brand is one-hot.
"""
import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

N_POLICIES = 3000
N_GARAGES = 450
N_BRANDS = 9
VALID_SHARE = 0.25


def make_portfolio(seed=7):
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 80, N_POLICIES)
    power = rng.gamma(6.0, 15.0, N_POLICIES)
    mileage = rng.lognormal(9.4, 0.5, N_POLICIES)
    bonus = rng.integers(0, 12, N_POLICIES)
    brand = rng.integers(0, N_BRANDS, N_POLICIES)
    garage = rng.integers(0, N_GARAGES, N_POLICIES)
    brand_effect = rng.normal(0, 0.3, N_BRANDS)
    garage_effect = rng.normal(0, 0.5, N_GARAGES)
    logit = (
        -1.1
        + 1.3 * np.exp(-(age - 18) / 9.0)
        + 0.006 * (power - 90)
        + 0.5 * (np.log(mileage) - 9.4)
        - 0.09 * (bonus - 5)
        + brand_effect[brand]
        + garage_effect[garage]
    )
    claim = (rng.random(N_POLICIES) < 1 / (1 + np.exp(-logit))).astype(np.float64)
    numeric = np.stack([age, power, np.log(mileage), bonus], axis=1)
    return {"numeric": numeric, "brand": brand, "garage": garage, "claim": claim}


class SmoothedMean:
    """Category -> claim rate, shrunk towards the overall rate."""

    def __init__(self, n_codes, prior_rows=4.0):
        self.n_codes = n_codes
        self.prior_rows = prior_rows

    def fit(self, codes, target):
        count = np.bincount(codes, minlength=self.n_codes)
        total = np.bincount(codes, weights=target, minlength=self.n_codes)
        overall = target.mean()
        self.table = (total + self.prior_rows * overall) / (count + self.prior_rows)
        return self

    def transform(self, codes):
        return self.table[codes]


def encode_out_of_fold(codes, target, folds=5, seed=11):
    fold = np.random.default_rng(seed).permutation(len(codes)) % folds
    column = np.empty(len(codes))
    for k in range(folds):
        encoder = SmoothedMean(N_GARAGES).fit(codes[fold != k], target[fold != k])
        column[fold == k] = encoder.transform(codes[fold == k])
    return column


def garage_column(garage, claim, train, valid, fixed):
    column = np.empty(len(garage))
    if fixed:
        column[train] = encode_out_of_fold(garage[train], claim[train])
        encoder = SmoothedMean(N_GARAGES).fit(garage[train], claim[train])
        column[valid] = encoder.transform(garage[valid])
    else:
        column[:] = SmoothedMean(N_GARAGES).fit(garage, claim).transform(garage)
    return column


def build_features(table, train, valid, fixed):
    garage = garage_column(table["garage"], table["claim"], train, valid, fixed)
    numeric = np.column_stack([table["numeric"], garage])
    mean, std = numeric[train].mean(0), numeric[train].std(0)
    onehot = np.eye(N_BRANDS)[table["brand"]]
    features = np.column_stack([(numeric - mean) / std, onehot])
    return torch.tensor(features, dtype=torch.float32)


class RatingNet(nn.Module):
    def __init__(self, width, hidden=48):
        super().__init__()
        self.wide = nn.Linear(width, 1)
        self.deep = nn.Sequential(
            nn.Linear(width, hidden),
            nn.SiLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden, hidden // 2),
            nn.SiLU(),
            nn.Linear(hidden // 2, 1),
        )

    def forward(self, x):
        return (self.wide(x) + self.deep(x)).squeeze(-1)


def auc(score, label):
    rank = torch.empty(len(score))
    rank[score.argsort()] = torch.arange(1, len(score) + 1, dtype=torch.float32)
    pos = label.sum()
    neg = len(label) - pos
    return ((rank[label > 0.5].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    score = model(x)
    loss = nn.functional.binary_cross_entropy_with_logits(score, y).item()
    model.train()
    return loss, auc(score, y)


def prove(table, train, valid, fixed, sample=40):
    """Share of policies whose own garage value reacts to their own claim flag."""
    rng = np.random.default_rng(3)
    rows = np.concatenate([rng.choice(train, sample), rng.choice(valid, sample)])
    base = garage_column(table["garage"], table["claim"], train, valid, fixed)
    moved = 0
    for row in rows:
        flipped = table["claim"].copy()
        flipped[row] = 1 - flipped[row]
        other = garage_column(table["garage"], flipped, train, valid, fixed)
        moved += abs(other[row] - base[row]) > 1e-9
    share = moved / len(rows)
    corr = np.corrcoef(base[valid], table["claim"][valid])[0, 1]
    print(f"own flag moves own value: {share:.2f}  valid correlation: {corr:.3f}")
    print("fault shows:", "yes" if share > 0.05 else "no")


def fit(model, x, y, train, valid, args, out):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    shuffle = torch.Generator().manual_seed(5)
    loss_fn = nn.BCEWithLogitsLoss()
    best = float("inf")
    for epoch in range(args.epochs):
        running = 0.0
        order = train[torch.randperm(len(train), generator=shuffle)]
        for rows in order.split(args.batch_size):
            loss = loss_fn(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item() * len(rows)
        schedule.step()
        valid_loss, valid_auc = evaluate(model, x[valid], y[valid])
        if valid_loss < best:
            best = valid_loss
            torch.save(model.state_dict(), out / "rating_net.pt")
        print(
            f"epoch {epoch + 1:2d}  train {running / len(train):.4f}"
            f"  valid {valid_loss:.4f}  auc {valid_auc:.3f}"
        )
    model.load_state_dict(torch.load(out / "rating_net.pt"))


def main():
    parser = argparse.ArgumentParser(description="motor claim model")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    table = make_portfolio()
    order = np.random.default_rng(1).permutation(N_POLICIES)
    n_valid = int(VALID_SHARE * N_POLICIES)
    valid, train = np.sort(order[:n_valid]), np.sort(order[n_valid:])
    x = build_features(table, train, valid, args.fixed)
    y = torch.tensor(table["claim"], dtype=torch.float32)
    model = RatingNet(x.shape[1])
    train_rows, valid_rows = torch.from_numpy(train), torch.from_numpy(valid)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        fit(model, x, y, train_rows, valid_rows, args, out)
        loss, area = evaluate(model, x[valid_rows], y[valid_rows])
        summary = {"valid_logloss": round(loss, 4), "valid_auc": round(area, 4)}
        (out / "summary.json").write_text(json.dumps(summary))
        print("best model:", summary)
    if args.prove:
        prove(table, train, valid, args.fixed)


if __name__ == "__main__":
    main()
