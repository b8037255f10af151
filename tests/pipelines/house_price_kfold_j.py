"""
House prices, 5-fold CV with a small MLP + categorical embeddings.
(was a notebook, hence the order of things)
"""
import argparse
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 2023
N_FOLDS = 5
BATCH = 128
PATIENCE = 6


def seed_everything(seed):
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_table(n=1600):
    rng = np.random.RandomState(SEED)
    area = rng.gamma(6, 20, n)
    rooms = np.clip(np.round(area / 30 + rng.normal(0, 1, n)), 1, 9)
    age = rng.uniform(0, 90, n)
    dist = rng.exponential(6, n)
    garden = rng.binomial(1, 0.4, n) * rng.gamma(2, 60, n)
    district = rng.randint(0, 12, n)
    heating = rng.randint(0, 4, n)
    d_eff = rng.normal(0, 0.25, 12)
    h_eff = np.array([-0.1, 0.0, 0.08, 0.15])
    log_price = (
        11
        + 0.6 * np.log(area)
        + 0.03 * rooms
        - 0.004 * age
        + 0.00003 * (age - 45) ** 2
        - 0.03 * dist
        + 0.0008 * garden
        + d_eff[district]
        + h_eff[heating]
        + rng.normal(0, 0.08, n)
    )
    num = np.stack([area, rooms, age, dist, garden], axis=1)
    num[rng.rand(*num.shape) < 0.03] = np.nan  # missing entries
    cat = np.stack([district, heating], axis=1)
    return num.astype(np.float32), cat.astype(np.int64), np.exp(log_price)


class Preprocessor:
    """median imputation, log1p, standardise; fitted on the training fold only"""

    def fit(self, num, price):
        self.median = np.nanmedian(num, axis=0)
        z = np.log1p(self._fill(num))
        self.mu, self.sd = z.mean(0), z.std(0) + 1e-6
        self.y_mu, self.y_sd = np.log(price).mean(), np.log(price).std()
        return self

    def _fill(self, num):
        return np.where(np.isnan(num), self.median, num)

    def features(self, num):
        z = (np.log1p(self._fill(num)) - self.mu) / self.sd
        return np.concatenate([z, np.isnan(num)], axis=1).astype(np.float32)

    def target(self, price):
        return ((np.log(price) - self.y_mu) / self.y_sd).astype(np.float32)

    def to_log_price(self, pred):
        return pred * self.y_sd + self.y_mu


class TabNet(nn.Module):
    def __init__(self, n_num, cards, hidden=96):
        super().__init__()
        self.embs = nn.ModuleList(
            [nn.Embedding(c, min(8, (c + 1) // 2)) for c in cards]
        )
        d = n_num + sum(e.embedding_dim for e in self.embs)
        self.body = nn.Sequential(
            nn.Linear(d, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, 1),
        )

    def forward(self, num, cat):
        e = [emb(cat[:, j]) for j, emb in enumerate(self.embs)]
        return self.body(torch.cat([num, *e], dim=1)).squeeze(1)


def predict(model, loader):
    model.eval()
    out = []
    with torch.inference_mode():
        for num, cat, _ in loader:
            out.append(model(num, cat))
    return torch.cat(out).numpy()


def run_fold(fold, tr, va, num, cat, price, epochs):
    seed_everything(SEED + fold)
    prep = Preprocessor().fit(num[tr], price[tr])

    def dataset(idx):
        return TensorDataset(
            torch.from_numpy(prep.features(num[idx])),
            torch.from_numpy(cat[idx]),
            torch.from_numpy(prep.target(price[idx])),
        )

    # drop_last: BatchNorm does not like a tiny rest batch, the shuffle covers all rows over epochs
    train_loader = DataLoader(
        dataset(tr), batch_size=BATCH, shuffle=True, drop_last=True
    )
    valid_loader = DataLoader(dataset(va), batch_size=512, shuffle=False)

    model = TabNet(2 * num.shape[1], [12, 4])
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(
        opt, mode="min", factor=0.5, patience=2
    )
    loss_fn = nn.SmoothL1Loss()

    best_rmse, best_state, wait = float("inf"), None, 0
    for epoch in range(epochs):
        model.train()
        losses = []
        for b_num, b_cat, b_y in train_loader:
            loss = loss_fn(model(b_num, b_cat), b_y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())

        log_pred = prep.to_log_price(predict(model, valid_loader))
        rmse = float(np.sqrt(np.mean((log_pred - np.log(price[va])) ** 2)))
        sched.step(rmse)
        if rmse < best_rmse - 1e-5:
            best_rmse, wait = rmse, 0
            best_state = copy.deepcopy(model.state_dict())
        else:
            wait += 1
        if epoch % 4 == 0 or wait >= PATIENCE:
            print(
                f"  fold {fold} ep {epoch:2d} loss {np.mean(losses):.4f} rmsle {rmse:.4f} lr {opt.param_groups[0]['lr']:.1e}"
            )
        if wait >= PATIENCE:
            print(f"  early stop, best {best_rmse:.4f}")
            break

    model.load_state_dict(best_state)
    return prep.to_log_price(predict(model, valid_loader)), best_rmse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    epochs = parser.parse_args().epochs

    num, cat, price = make_table()
    order = np.random.RandomState(SEED + 1).permutation(len(price))
    folds = np.array_split(order, N_FOLDS)

    oof = np.full(len(price), np.nan)
    scores = []
    for k in range(N_FOLDS):
        va = folds[k]
        tr = np.concatenate([folds[j] for j in range(N_FOLDS) if j != k])
        assert len(np.intersect1d(tr, va)) == 0
        oof[va], score = run_fold(k, tr, va, num, cat, price, epochs)
        scores.append(score)
        print(f"fold {k}: {score:.4f}")

    assert not np.isnan(oof).any()
    print(f"CV  {np.mean(scores):.4f} +- {np.std(scores):.4f}")
    print(
        f"OOF {np.sqrt(np.mean((oof - np.log(price)) ** 2)):.4f}  (std of target {np.log(price).std():.4f})"
    )


if __name__ == "__main__":
    main()
