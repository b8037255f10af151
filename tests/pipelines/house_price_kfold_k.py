"""Course work, part 3: MLP for house prices, 5-fold cross-validation.

The table is simulated. We predict log(price) and report the error in per cent.
"""
import argparse
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_table(n=900, seed=7):
    r = np.random.RandomState(seed)
    area = r.gamma(6.0, 18.0, n) + 20
    rooms = np.clip(np.round(area / 28 + r.randn(n)), 1, 9)
    age = r.exponential(25, n)
    distance = r.exponential(6, n)
    district = r.randint(0, 8, n)
    district_effect = r.randn(8) * 0.25
    log_price = (
        7.5
        + 0.9 * np.log(area)
        + 0.03 * rooms
        - 0.004 * age
        - 0.035 * distance
        + district_effect[district]
        - 0.02 * (age > 40) * distance
        + 0.08 * r.randn(n)
    )
    area[r.rand(n) < 0.05] = np.nan  # some missing values as in the real table
    num = np.stack([area, rooms, age, distance], 1)
    return num.astype("float32"), district.astype("int64"), log_price.astype("float32")


class Preprocessor:
    """Median for missing values, then z-score. Fitted on the training part of a fold."""

    def fit(self, num, y):
        self.median = np.nanmedian(num, axis=0)
        filled = np.where(np.isnan(num), self.median, num)
        self.mean, self.std = filled.mean(0), filled.std(0) + 1e-6
        self.y_mean, self.y_std = y.mean(), y.std()
        return self

    def transform(self, num, y):
        missing = np.isnan(num[:, :1]).astype("float32")
        filled = np.where(np.isnan(num), self.median, num)
        x = np.concatenate([(filled - self.mean) / self.std, missing], axis=1)
        return torch.tensor(x, dtype=torch.float32), torch.tensor(
            (y - self.y_mean) / self.y_std
        )


class PriceNet(nn.Module):
    def __init__(self, n_num=5, n_district=8):
        super().__init__()
        self.emb = nn.Embedding(n_district, 4)
        self.body = nn.Sequential(
            nn.Linear(n_num + 4, 64),
            nn.SiLU(),
            nn.Dropout(0.05),
            nn.Linear(64, 32),
            nn.SiLU(),
            nn.Linear(32, 1),
        )

    def forward(self, num, district):
        return self.body(torch.cat([num, self.emb(district)], dim=1)).squeeze(1)


def run_epoch(model, loader, loss_fn, optimizer):
    model.train()
    total = 0.0
    for num, dist, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(num, dist), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * y.size(0)
    return total / len(loader.dataset)


def predict(model, loader):
    model.eval()
    outs, ys = [], []
    with torch.no_grad():
        for num, dist, y in loader:
            outs.append(model(num, dist))
            ys.append(y)
    return torch.cat(outs), torch.cat(ys)


def train_fold(fold, train_idx, stop_idx, test_idx, table, args):
    num, district, y = table
    prep = Preprocessor().fit(num[train_idx], y[train_idx])

    def loader(idx, shuffle):
        x, t = prep.transform(num[idx], y[idx])
        gen = torch.Generator().manual_seed(args.seed + fold)
        return DataLoader(
            TensorDataset(x, torch.from_numpy(district[idx]), t),
            batch_size=args.batch_size,
            shuffle=shuffle,
            generator=gen,
        )

    train_loader, stop_loader, test_loader = (
        loader(train_idx, True),
        loader(stop_idx, False),
        loader(test_idx, False),
    )
    torch.manual_seed(args.seed + fold)
    model = PriceNet()  # a fresh model and optimiser in every fold
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, weight_decay=1e-5)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=2
    )
    loss_fn = nn.SmoothL1Loss()

    best, best_state, bad = float("inf"), None, 0
    for epoch in range(args.epochs):
        train_loss = run_epoch(model, train_loader, loss_fn, optimizer)
        out, t = predict(model, stop_loader)
        stop_loss = loss_fn(out, t).item()
        plateau.step(stop_loss)
        if stop_loss < best - 1e-4:
            best, best_state, bad = stop_loss, copy.deepcopy(model.state_dict()), 0
        else:
            bad += 1
            if bad >= args.patience:
                break
    model.load_state_dict(best_state)

    out, t = predict(model, test_loader)
    err = (out - t) * float(prep.y_std)  # back to log(price)
    mape = (err.exp() - 1).abs().mean().item() * 100
    rmse = err.pow(2).mean().sqrt().item()
    print(
        f"fold {fold}: {epoch + 1} epochs, train {train_loss:.4f}, stop {best:.4f}, "
        f"test rmse(log) {rmse:.4f}, error {mape:.1f}%"
    )
    return rmse, mape


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--folds", type=int, default=5)
    p.add_argument("--batch-size", type=int, default=96)
    p.add_argument("--patience", type=int, default=4)
    p.add_argument("--seed", type=int, default=42)
    args = p.parse_args()

    table = make_table()
    order = np.random.RandomState(args.seed).permutation(len(table[0]))
    folds = np.array_split(order, args.folds)
    scores = []
    for k in range(args.folds):
        rest = np.concatenate([f for j, f in enumerate(folds) if j != k])
        cut = len(rest) // 8
        # early stopping looks at its own slice, the test fold is used once
        scores.append(train_fold(k, rest[cut:], rest[:cut], folds[k], table, args))
    rmse, mape = np.array(scores).T
    print(
        f"CV rmse(log) {rmse.mean():.4f} +- {rmse.std():.4f}   error {mape.mean():.1f}%"
    )


if __name__ == "__main__":
    main()
