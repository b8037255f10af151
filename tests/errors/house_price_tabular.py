# House price regression, notebook exported to a script.
# Numeric columns + two categorical columns with embeddings, target = log price.
import argparse
import math
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=240)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

SEED = 2023
BATCH = 128
np.random.seed(SEED)
torch.manual_seed(SEED)

# ---------------------------------------------------------------- data
N_TRAIN, N_VALID = 3000, 1030
N = N_TRAIN + N_VALID
year = np.sort(np.random.randint(1950, 2020, N))
np.random.shuffle(year[:N_TRAIN])
area = np.random.lognormal(4.6, 0.35, N)
rooms = np.clip(np.round(area / 28 + np.random.randn(N)), 1, 9)
dist = np.random.exponential(6.0, N)
hood = np.random.randint(0, 25, N)
kind = np.random.randint(0, 4, N)
hood_effect = np.random.randn(25) * 0.25
kind_effect = np.array([0.0, 0.1, 0.3, -0.2])
log_price = (
    11
    + 0.8 * np.log(area / 100)
    + 0.05 * rooms
    - 0.03 * dist
    + hood_effect[hood]
    + kind_effect[kind]
    + 0.002 * (year - 1980)
    + np.random.randn(N) * (0.08 + 0.15 * (year > 2010))
)

num = np.stack([np.log(area), rooms, np.log1p(dist), year], 1)
mu, sd = num[:N_TRAIN].mean(0), num[:N_TRAIN].std(0)
num = ((num - mu) / sd).astype(np.float32)
cat = np.stack([hood, kind], 1)
target = (log_price - 11).astype(np.float32)


class HouseDataset(Dataset):
    def __init__(self, lo, hi):
        self.num = torch.from_numpy(num[lo:hi])
        self.cat = torch.from_numpy(cat[lo:hi])
        self.y = torch.from_numpy(target[lo:hi])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.num[i], self.cat[i], self.y[i]


train_dl = DataLoader(
    HouseDataset(0, N_TRAIN), batch_size=BATCH, shuffle=True, drop_last=True
)
valid_dl = DataLoader(HouseDataset(N_TRAIN, N), batch_size=BATCH)


# ---------------------------------------------------------------- model
class TabNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.e_hood = nn.Embedding(25, 6)
        self.e_kind = nn.Embedding(4, 2)
        self.mlp = nn.Sequential(
            nn.Linear(12, 64),
            nn.ReLU(),
            nn.BatchNorm1d(64),
            nn.Dropout(0.1),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, xn, xc):
        z = torch.cat([xn, self.e_hood(xc[:, 0]), self.e_kind(xc[:, 1])], 1)
        return self.mlp(z).squeeze(1)


model = TabNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
    optimizer, factor=0.5, patience=1
)
mse = nn.MSELoss()


def run_validation():
    model.eval()
    losses, sizes = [], []
    with torch.no_grad():
        for xn, xc, y in valid_dl:
            losses.append(mse(model(xn, xc), y).item())
            sizes.append(len(y))
    if args.fixed:
        return math.sqrt(np.average(losses, weights=sizes))
    return math.sqrt(np.mean(losses))


# ---------------------------------------------------------------- training
best_rmse = float("inf")
step = 0
epoch = 0
while step < args.steps:
    model.train()
    train_loss = []
    for xn, xc, y in train_dl:
        optimizer.zero_grad()
        loss = mse(model(xn, xc), y)
        loss.backward()
        optimizer.step()
        train_loss.append(loss.item())
        step += 1
        if step >= args.steps:
            break
    rmse = run_validation()
    scheduler.step(rmse)
    epoch += 1
    tag = ""
    if rmse < best_rmse:
        best_rmse = rmse
        tag = " *"
    print(
        f"epoch {epoch} | train rmse {math.sqrt(np.mean(train_loss)):.4f} | valid rmse {rmse:.4f}"
        f" | lr {optimizer.param_groups[0]['lr']:.2e}{tag}"
    )

print(f"CV score: {best_rmse:.5f}")

if args.prove:
    reported = run_validation()
    ds = valid_dl.dataset
    with torch.no_grad():
        exact = math.sqrt(mse(model(ds.num, ds.cat), ds.y).item())
    print("fault shows:", "yes" if abs(reported - exact) > 1e-3 * exact else "no")
