"""House prices: 5-fold cross validation of an MLP with entity embeddings (from my notebook)."""
import argparse
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 2023
N_FOLDS = 5
PATIENCE = 4


def make_houses(n=1800):
    rng = np.random.default_rng(SEED)
    area = rng.gamma(6, 22, n)
    rooms = np.clip(np.round(area / 28 + rng.normal(0, 1, n)), 1, 9)
    age = rng.uniform(0, 90, n)
    dist = rng.exponential(6, n)
    district = rng.integers(0, 12, n)
    heating = rng.integers(0, 4, n)
    district_effect = rng.normal(0, 0.25, 12)
    heating_effect = np.array([0.0, 0.05, -0.08, 0.12])
    log_price = (
        11
        + 0.7 * np.log(area / 100)
        + 0.03 * rooms
        - 0.004 * age
        - 0.05 * np.sqrt(dist) * (area > 120)
        + district_effect[district]
        + heating_effect[heating]
        + rng.normal(0, 0.08, n)
    )
    area[rng.random(n) < 0.05] = np.nan
    numeric = np.stack([area, rooms, age, dist], axis=1)
    categorical = np.stack([district, heating], axis=1)
    return numeric, categorical, np.exp(log_price)


class Preprocess:
    """Median fill, missing flag, scaling. Fitted on the training part of a fold only."""

    def fit(self, num, y_log):
        self.median = np.nanmedian(num, axis=0)
        filled = np.where(np.isnan(num), self.median, num)
        self.mean, self.std = filled.mean(0), filled.std(0) + 1e-8
        self.y_mean, self.y_std = y_log.mean(), y_log.std()
        return self

    def features(self, num):
        flag = np.isnan(num[:, :1]).astype(np.float32)
        filled = np.where(np.isnan(num), self.median, num)
        z = (filled - self.mean) / self.std
        return torch.tensor(np.concatenate([z, flag], 1), dtype=torch.float32)

    def target(self, y_log):
        return torch.tensor((y_log - self.y_mean) / self.y_std, dtype=torch.float32)

    def inverse(self, pred):
        return pred * self.y_std + self.y_mean


class TabularNet(nn.Module):
    def __init__(self, n_num, cardinalities, hidden=64):
        super().__init__()
        self.embeddings = nn.ModuleList(
            [nn.Embedding(c, min(6, (c + 1) // 2)) for c in cardinalities]
        )
        width = n_num + sum(e.embedding_dim for e in self.embeddings)
        self.body = nn.Sequential(
            nn.Linear(width, hidden),
            nn.BatchNorm1d(hidden),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, 1),
        )

    def forward(self, num, cat):
        parts = [emb(cat[:, i]) for i, emb in enumerate(self.embeddings)]
        return self.body(torch.cat([num] + parts, dim=1)).squeeze(1)


def predict(model, num, cat, batch=512):
    model.eval()
    out = []
    with torch.no_grad():
        for i in range(0, len(num), batch):
            out.append(model(num[i : i + batch], cat[i : i + batch]))
    return torch.cat(out)


def run_fold(fold, num, cat, y_log, tr, va, epochs):
    torch.manual_seed(SEED + fold)
    prep = Preprocess().fit(num[tr], y_log[tr])
    cat_t = torch.tensor(cat, dtype=torch.long)
    train_ds = TensorDataset(prep.features(num[tr]), cat_t[tr], prep.target(y_log[tr]))
    loader = DataLoader(train_ds, batch_size=128, shuffle=True)
    va_num, va_cat = prep.features(num[va]), cat_t[va]

    model = TabularNet(n_num=5, cardinalities=[12, 4])
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=epochs, eta_min=1e-4
    )
    loss_fn = nn.SmoothL1Loss()

    best_rmse, best_state, bad_epochs = float("inf"), None, 0
    for epoch in range(epochs):
        model.train()
        seen, total = 0, 0.0
        for xb_num, xb_cat, yb in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(xb_num, xb_cat), yb)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(yb)
            seen += len(yb)
        scheduler.step()

        val_pred = prep.inverse(predict(model, va_num, va_cat).numpy())
        rmse = float(np.sqrt(np.mean((val_pred - y_log[va]) ** 2)))
        print(
            f"fold {fold} epoch {epoch:2d} train {total / seen:.4f} val rmsle {rmse:.4f}"
        )
        if rmse < best_rmse - 1e-4:
            best_rmse, bad_epochs = rmse, 0
            best_state = copy.deepcopy(model.state_dict())
        else:
            bad_epochs += 1
            if bad_epochs >= PATIENCE:
                print(f"fold {fold}: stop at epoch {epoch}")
                break
    model.load_state_dict(best_state)
    return model, prep, best_rmse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs

    num, cat, price = make_houses()
    y_log = np.log(price)
    order = np.random.default_rng(SEED + 1).permutation(len(price))
    test_idx, dev_idx = order[:300], order[300:]
    folds = np.array_split(dev_idx, N_FOLDS)

    oof = np.zeros(len(price))
    test_preds = []
    scores = []
    for k in range(N_FOLDS):
        va = folds[k]
        tr = np.concatenate([folds[j] for j in range(N_FOLDS) if j != k])
        assert not set(tr) & set(va) and not set(tr) & set(test_idx)
        model, prep, score = run_fold(k, num, cat, y_log, tr, va, epochs)
        scores.append(score)
        cat_t = torch.tensor(cat, dtype=torch.long)
        oof[va] = prep.inverse(
            predict(model, prep.features(num[va]), cat_t[va]).numpy()
        )
        test_preds.append(
            prep.inverse(
                predict(model, prep.features(num[test_idx]), cat_t[test_idx]).numpy()
            )
        )

    oof_rmse = np.sqrt(np.mean((oof[dev_idx] - y_log[dev_idx]) ** 2))
    test_rmse = np.sqrt(np.mean((np.mean(test_preds, axis=0) - y_log[test_idx]) ** 2))
    print(
        f"folds {np.mean(scores):.4f} +- {np.std(scores):.4f} | oof {oof_rmse:.4f} | "
        f"test ensemble {test_rmse:.4f} | std of target {y_log[test_idx].std():.4f}"
    )


if __name__ == "__main__":
    main()
