# House prices, MLP with embeddings for the categorical columns. 4-fold CV.
# (notebook turned into a script)
import argparse
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--folds", type=int, default=4)
parser.add_argument("--patience", type=int, default=3)
args = parser.parse_args()

SEED = 42
np.random.seed(SEED)
torch.manual_seed(SEED)

# %% made-up data -------------------------------------------------------
N, N_TEST = 1600, 400
n_all = N + N_TEST
area = np.random.lognormal(4.6, 0.35, n_all)
rooms = np.clip(np.round(area / 28 + np.random.normal(0, 0.7, n_all)), 1, 9)
age = np.random.gamma(2.0, 15.0, n_all)
dist = np.random.exponential(6.0, n_all)
floor = np.random.randint(0, 8, n_all).astype(float)
district = np.random.randint(0, 12, n_all)
heating = np.random.randint(0, 4, n_all)
district_effect = np.random.normal(0, 0.25, 12)
heating_effect = np.array([0.0, 0.05, 0.1, -0.12])
log_price = (
    7.5
    + 0.9 * np.log(area)
    + 0.02 * rooms
    - 0.004 * age
    - 0.03 * dist
    + 0.01 * floor
    + district_effect[district]
    + heating_effect[heating]
    + np.random.normal(0, 0.08, n_all)
)

# a few missing ages, as in real life
age[np.random.rand(n_all) < 0.05] = np.nan

num = np.stack([area, rooms, age, dist, floor], axis=1).astype(np.float32)
cat = np.stack([district, heating], axis=1).astype(np.int64)
target = log_price.astype(np.float32)
num_test, cat_test, y_test = num[N:], cat[N:], target[N:]
num, cat, target = num[:N], cat[:N], target[:N]


# %% preprocessing, fitted on the training part of each fold ---------------
class Prep:
    def fit(self, x, y):
        self.fill = np.nanmedian(x, axis=0)
        x = np.where(np.isnan(x), self.fill, x)
        self.mean, self.std = x.mean(0), x.std(0) + 1e-6
        self.y_mean, self.y_std = float(y.mean()), float(y.std())
        return self

    def x(self, x):
        miss = np.isnan(x[:, 2:3]).astype(np.float32)
        x = np.where(np.isnan(x), self.fill, x)
        return torch.from_numpy(
            np.concatenate([(x - self.mean) / self.std, miss], 1).astype(np.float32)
        )

    def y(self, y):
        return torch.from_numpy((y - self.y_mean) / self.y_std)


class PriceNet(nn.Module):
    def __init__(self, n_num=6, cards=(12, 4), hidden=64):
        super().__init__()
        self.embs = nn.ModuleList(nn.Embedding(c, min(6, (c + 1) // 2)) for c in cards)
        d = n_num + sum(e.embedding_dim for e in self.embs)
        self.net = nn.Sequential(
            nn.Linear(d, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(0.05),
            nn.Linear(hidden, hidden // 2),
            nn.ReLU(),
            nn.Linear(hidden // 2, 1),
        )

    def forward(self, xn, xc):
        e = [emb(xc[:, i]) for i, emb in enumerate(self.embs)]
        return self.net(torch.cat([xn, *e], dim=1)).squeeze(1)


def predict(model, loader):
    model.eval()
    out = []
    with torch.no_grad():
        for batch in loader:
            out.append(model(batch[0], batch[1]))
    return torch.cat(out).numpy()


def rmse(a, b):
    return float(np.sqrt(np.mean((a - b) ** 2)))


# %% cross validation --------------------------------------------------------
perm = np.random.permutation(N)
folds = np.array_split(perm, args.folds)
oof = np.zeros(N, dtype=np.float32)
test_pred = np.zeros(N_TEST, dtype=np.float32)

for k in range(args.folds):
    va = folds[k]
    tr = np.concatenate([folds[j] for j in range(args.folds) if j != k])
    prep = Prep().fit(num[tr], target[tr])

    train_dl = DataLoader(
        TensorDataset(prep.x(num[tr]), torch.from_numpy(cat[tr]), prep.y(target[tr])),
        batch_size=64,
        shuffle=True,
        drop_last=True,
    )
    valid_dl = DataLoader(
        TensorDataset(prep.x(num[va]), torch.from_numpy(cat[va])), batch_size=256
    )
    test_dl = DataLoader(
        TensorDataset(prep.x(num_test), torch.from_numpy(cat_test)), batch_size=256
    )

    torch.manual_seed(SEED + k)
    model = PriceNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=1e-2, total_steps=args.epochs * len(train_dl)
    )
    loss_fn = nn.SmoothL1Loss()

    best, best_state, bad = float("inf"), None, 0
    for epoch in range(args.epochs):
        model.train()
        running, seen = 0.0, 0
        for xn, xc, y in train_dl:
            opt.zero_grad()
            loss = loss_fn(model(xn, xc), y)
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item() * len(y)
            seen += len(y)
        pv = predict(model, valid_dl) * prep.y_std + prep.y_mean
        score = rmse(pv, target[va])
        print(
            f"fold {k} epoch {epoch} train {running / seen:.4f} valid rmse {score:.4f}"
        )
        if score < best:
            best, bad = score, 0
            best_state = copy.deepcopy(model.state_dict())
        else:
            bad += 1
            if bad >= args.patience:
                print("  stop early")
                break

    model.load_state_dict(best_state)
    oof[va] = predict(model, valid_dl) * prep.y_std + prep.y_mean
    test_pred += (predict(model, test_dl) * prep.y_std + prep.y_mean) / args.folds

print(f"OOF rmse {rmse(oof, target):.4f}  (std of target {target.std():.4f})")
print(f"test rmse of the fold average {rmse(test_pred, y_test):.4f}")
