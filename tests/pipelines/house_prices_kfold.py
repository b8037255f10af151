# House prices: 4-fold CV with a small MLP + embeddings for the neighbourhood.
# Notebook turned into a script; fold predictions are averaged on the holdout.
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

ap = argparse.ArgumentParser()
ap.add_argument("--epochs", type=int, default=7)
ap.add_argument("--folds", type=int, default=4)
ap.add_argument("--seed", type=int, default=2024)
args = ap.parse_args()


class CFG:
    lr = 8e-3
    batch_size = 64
    weight_decay = 1e-2
    n_areas = 15
    types = 4
    numeric = ["sqm", "rooms", "age", "distance", "garden", "noise_level"]


def seed_everything(seed):
    np.random.seed(seed)
    torch.manual_seed(seed)


seed_everything(args.seed)

# ---- data ------------------------------------------------------------------
N = 1500
sqm = np.random.gamma(6, 18, N) + 20
rooms = np.clip(np.round(sqm / 28 + np.random.randn(N)), 1, 9)
age = np.random.uniform(0, 90, N)
distance = np.random.exponential(6, N)
garden = np.where(np.random.rand(N) < 0.4, np.random.gamma(2, 60, N), 0)
noise = np.random.uniform(30, 75, N)
noise[np.random.rand(N) < 0.1] = np.nan  # 10 % not measured
area = np.random.randint(0, CFG.n_areas, N)
kind = np.random.randint(0, CFG.types, N)
area_effect = np.random.randn(CFG.n_areas) * 0.25
kind_effect = np.array([0.0, 0.1, 0.25, -0.15])
log_price = (
    9.2
    + 0.75 * np.log(sqm)
    + 0.04 * rooms
    - 0.004 * age
    - 0.03 * distance
    + 0.0008 * garden
    - 0.006 * (np.nan_to_num(noise, nan=50) - 50)
    + area_effect[area]
    + kind_effect[kind]
    + 0.08 * np.random.randn(N)
)

X_num = np.stack([sqm, rooms, age, distance, garden, noise], 1).astype(np.float32)
X_cat = np.stack([area, kind], 1).astype(np.int64)
y = log_price.astype(np.float32)

perm = np.random.permutation(N)
hold, dev = perm[:300], perm[300:]


class Prep:
    """median imputation + standardisation, parameters from the training part only"""

    def fit(self, X, y):
        self.median = np.nanmedian(X, axis=0)
        Z = np.where(np.isnan(X), self.median, X)
        self.mu, self.sd = Z.mean(0), Z.std(0) + 1e-6
        self.ymu, self.ysd = y.mean(), y.std()
        return self

    def x(self, X):
        Z = np.where(np.isnan(X), self.median, X)
        return torch.tensor((Z - self.mu) / self.sd, dtype=torch.float32)

    def y(self, y):
        return torch.tensor((y - self.ymu) / self.ysd, dtype=torch.float32)

    def y_inv(self, t):
        return t.numpy() * self.ysd + self.ymu


class TabNet(nn.Module):
    def __init__(self, n_num):
        super().__init__()
        self.emb_area = nn.Embedding(CFG.n_areas, 6)
        self.emb_kind = nn.Embedding(CFG.types, 3)
        self.body = nn.Sequential(
            nn.Linear(n_num + 9, 64),
            nn.BatchNorm1d(64),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(64, 32),
            nn.BatchNorm1d(32),
            nn.SiLU(),
            nn.Linear(32, 1),
        )

    def forward(self, num, cat):
        z = torch.cat([num, self.emb_area(cat[:, 0]), self.emb_kind(cat[:, 1])], dim=1)
        return self.body(z).squeeze(1)


def param_groups(model):
    decay, plain = [], []
    for name, p in model.named_parameters():
        (plain if p.ndim == 1 or name.startswith("emb_") else decay).append(p)
    return [
        {"params": decay, "weight_decay": CFG.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]


@torch.no_grad()
def predict(model, num, cat):
    model.eval()
    return torch.cat([model(n, c) for n, c in zip(num.split(256), cat.split(256))])


def run_fold(fold, tr, va):
    prep = Prep().fit(X_num[tr], y[tr])
    ds = TensorDataset(prep.x(X_num[tr]), torch.from_numpy(X_cat[tr]), prep.y(y[tr]))
    loader = DataLoader(ds, batch_size=CFG.batch_size, shuffle=True, drop_last=True)
    va_num, va_cat = prep.x(X_num[va]), torch.from_numpy(X_cat[va])

    seed_everything(args.seed + fold)
    model = TabNet(X_num.shape[1])
    optimizer = torch.optim.AdamW(param_groups(model), lr=CFG.lr)
    scheduler = OneCycleLR(
        optimizer,
        max_lr=CFG.lr,
        total_steps=args.epochs * len(loader) + 1,
        pct_start=0.2,
    )
    criterion = nn.SmoothL1Loss(beta=0.5)

    best_rmse, best_state = np.inf, None
    for epoch in range(args.epochs):
        model.train()
        losses = []
        for num, cat, target in loader:
            pred = model(num, cat)
            loss = criterion(pred, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        rmse = float(
            np.sqrt(np.mean((prep.y_inv(predict(model, va_num, va_cat)) - y[va]) ** 2))
        )
        if rmse < best_rmse:
            best_rmse = rmse
            best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        if epoch == args.epochs - 1 or epoch % 3 == 0:
            print(
                f"  fold {fold} epoch {epoch} train {np.mean(losses):.4f} valid rmse(log) {rmse:.4f}"
            )
    model.load_state_dict(best_state)
    oof = prep.y_inv(predict(model, va_num, va_cat))
    hold_pred = prep.y_inv(
        predict(model, prep.x(X_num[hold]), torch.from_numpy(X_cat[hold]))
    )
    return oof, hold_pred, best_rmse


fold_of = np.arange(len(dev)) % args.folds
oof = np.zeros(len(dev), dtype=np.float32)
hold_preds, scores = [], []
for fold in range(args.folds):
    tr, va = dev[fold_of != fold], dev[fold_of == fold]
    assert not set(tr) & set(va)
    oof[fold_of == fold], hp, score = run_fold(fold, tr, va)
    hold_preds.append(hp)
    scores.append(score)
    print(f"fold {fold}: best rmse {score:.4f}")

print(
    f"CV {np.mean(scores):.4f} +- {np.std(scores):.4f}   OOF {np.sqrt(np.mean((oof - y[dev]) ** 2)):.4f}"
)
blend = np.mean(hold_preds, axis=0)
print(
    f"holdout rmse {np.sqrt(np.mean((blend - y[hold]) ** 2)):.4f} "
    f"(predicting the mean: {np.sqrt(np.mean((y[dev].mean() - y[hold]) ** 2)):.4f})"
)
