# rent prediction, 4 folds, early stopping in every fold, mean of the fold models for the test rows
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=15, help="maximum per fold")
parser.add_argument("--folds", type=int, default=4)
parser.add_argument("--patience", type=int, default=4)
parser.add_argument("--bs", type=int, default=128)
args = parser.parse_args()

SEED = 777
np.random.seed(SEED)


def make_flats(n):
    area = np.random.gamma(6, 11, n)
    rooms = np.clip(np.round(area / 25 + np.random.normal(0, 0.5, n)), 1, 6)
    year = np.random.randint(1900, 2022, n).astype(float)
    dist = np.random.exponential(4, n)
    floor = np.random.randint(0, 9, n).astype(float)
    quarter = np.random.randint(0, 12, n)
    heating = np.random.randint(0, 4, n)
    level = np.linspace(8, 15, 12)[quarter]
    rent = area * (
        level - 0.25 * dist + 0.03 * (year - 1960) * (year > 1960)
    ) + 20 * floor * (heating > 1)
    rent = np.maximum(rent, 120) * np.exp(np.random.normal(0, 0.08, n))
    year[np.random.rand(n) < 0.1] = np.nan
    num = np.stack([area, rooms, year, dist, floor], 1)
    cat = np.stack([quarter, heating], 1)
    return num, cat, rent


class Prep:
    """median for the gaps, standard scores; fitted on training rows only"""

    def fit(self, num, rent):
        self.median = np.nanmedian(num, 0)
        filled = np.where(np.isnan(num), self.median, num)
        self.mean, self.std = filled.mean(0), filled.std(0)
        y = np.log(rent)
        self.y_mean, self.y_std = y.mean(), y.std()
        return self

    def x(self, num):
        gap = np.isnan(num[:, 2:3]).astype(float)
        filled = np.where(np.isnan(num), self.median, num)
        return torch.tensor(
            np.hstack([(filled - self.mean) / self.std, gap]), dtype=torch.float32
        )

    def y(self, rent):
        return torch.tensor(
            (np.log(rent) - self.y_mean) / self.y_std, dtype=torch.float32
        )

    def rent(self, y):
        return np.exp(y.double().numpy() * self.y_std + self.y_mean)


class RentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.quarter = nn.Embedding(12, 4)
        self.heating = nn.Embedding(4, 2)
        self.mlp = nn.Sequential(
            nn.Linear(6 + 6, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, num, cat):
        z = torch.cat([num, self.quarter(cat[:, 0]), self.heating(cat[:, 1])], 1)
        return self.mlp(z).squeeze(1)


def predict(net, num, cat):
    net.eval()
    with torch.no_grad():
        return torch.cat([net(a, b) for a, b in zip(num.split(512), cat.split(512))])


def fit_fold(fold, num_tr, cat_tr, y_tr, num_va, cat_va, y_va):
    torch.manual_seed(SEED + fold)
    net = RentNet()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=1)
    huber = nn.HuberLoss(delta=1.0)
    best, best_state, bad = np.inf, None, 0
    for epoch in range(args.epochs):
        net.train()
        perm = torch.randperm(len(y_tr))
        batches = list(perm.split(args.bs))
        if len(batches[-1]) < 2:  # batch norm needs two rows
            batches.pop()
        for idx in batches:
            loss = huber(net(num_tr[idx], cat_tr[idx]), y_tr[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        va = huber(predict(net, num_va, cat_va), y_va).item()
        plateau.step(va)
        if va < best - 1e-5:
            best, best_state, bad = va, copy.deepcopy(net.state_dict()), 0
        else:
            bad += 1
            if bad >= args.patience:
                break
    net.load_state_dict(best_state)
    print(f"fold {fold}: stopped after epoch {epoch}, best validation loss {best:.4f}")
    return net


def mape(true, pred):
    return np.mean(np.abs(true - pred) / true)


num, cat, rent = make_flats(3000)
num_test, cat_test, rent_test = make_flats(600)
cat_t, cat_test_t = torch.from_numpy(cat), torch.from_numpy(cat_test)

order = np.random.permutation(len(rent))
parts = np.array_split(order, args.folds)
oof = np.zeros(len(rent))
test_pred = np.zeros(len(rent_test))

for k in range(args.folds):
    va = parts[k]
    tr = np.concatenate([parts[j] for j in range(args.folds) if j != k])
    prep = Prep().fit(num[tr], rent[tr])
    net = fit_fold(
        k,
        prep.x(num[tr]),
        cat_t[tr],
        prep.y(rent[tr]),
        prep.x(num[va]),
        cat_t[va],
        prep.y(rent[va]),
    )
    oof[va] = prep.rent(predict(net, prep.x(num[va]), cat_t[va]))
    test_pred += prep.rent(predict(net, prep.x(num_test), cat_test_t)) / args.folds
    print(f"        MAPE of the fold {mape(rent[va], oof[va]):.3%}")

print(f"out of fold MAPE {mape(rent, oof):.3%}")
print(
    f"test MAPE        {mape(rent_test, test_pred):.3%}   (median guess {mape(rent_test, np.median(rent)):.1%})"
)
