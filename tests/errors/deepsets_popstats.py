# Population statistics with a permutation-invariant network:
# predict the entropy of a 1-d component from a set of 2-d Gaussian samples (rotation task).
# Converted from the notebook.
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
from torch.optim import Adam

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=150)
ap.add_argument("--fixed", action="store_true")
ap.add_argument("--prove", action="store_true")
ap.add_argument("--network_dim", type=int, default=64)
ap.add_argument("--batch_size", type=int, default=64)
ap.add_argument("--set_size", type=int, default=100)
args = ap.parse_args()

np.random.seed(123)
torch.manual_seed(123)


# ---- data ---------------------------------------------------------------
def make_rotation_sets(n):
    """Each set: samples of a rotated Gaussian; target: entropy of the first coordinate."""
    base = np.array([[1.4, 0.0], [0.0, 0.15]])
    X = np.empty((n, args.set_size, 2), dtype=np.float32)
    y = np.empty(n, dtype=np.float32)
    alphas = np.random.uniform(0, math.pi, n)
    for i, a in enumerate(alphas):
        R = np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
        cov = R @ base @ R.T
        X[i] = np.random.multivariate_normal([0, 0], cov, size=args.set_size)
        y[i] = 0.5 * math.log(2 * math.pi * math.e * cov[0, 0])
    return X, y, alphas


class Dataset:
    def __init__(self, n_train=2048, n_val=256):
        self.x, self.y, self.t = make_rotation_sets(n_train)
        self.vx, self.vy, self.vt = make_rotation_sets(n_val)

    def get_batch(self):
        idx = np.random.choice(len(self.x), args.batch_size, replace=False)
        return torch.from_numpy(self.x[idx]), torch.from_numpy(self.y[idx])

    def validation(self):
        return torch.from_numpy(self.vx), torch.from_numpy(self.vy)


# ---- model --------------------------------------------------------------
class PermEqui(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.gamma = nn.Linear(in_dim, out_dim)
        self.lam = nn.Linear(in_dim, out_dim, bias=False)

    def forward(self, x):
        return self.gamma(x) - self.lam(x.mean(1, keepdim=True))


class DigitSet(nn.Module):
    def __init__(self, x_dim, d):
        super().__init__()
        self.phi = nn.Sequential(
            nn.Linear(x_dim, d),
            nn.ELU(),
            PermEqui(d, d),
            nn.ELU(),
            nn.Linear(d, d),
            nn.ELU(),
        )
        self.ro = nn.Sequential(nn.Linear(d, d), nn.ELU(), nn.Linear(d, 1))

    def forward(self, x):
        return self.ro(self.phi(x).mean(1))


class DeepSet:
    def __init__(self, dim, lr=1e-3, wd=1e-5):
        self.net = DigitSet(2, dim)
        self.optimizer = Adam(self.net.parameters(), lr=lr, weight_decay=wd)
        self.losses = []

    def l2(self, y_pred, y):
        if args.fixed:
            y = y.view(-1, 1)
        return ((y_pred - y) ** 2).mean()

    def train(self, x, y):
        self.net.train()
        self.optimizer.zero_grad()
        loss = self.l2(self.net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.optimizer.step()
        self.losses.append(loss.item())
        return loss.item()

    @torch.no_grad()
    def predict(self, x):
        self.net.eval()
        return self.net(x).squeeze(1)


# ---- run ----------------------------------------------------------------
ds = Dataset()
model = DeepSet(args.network_dim)
print(model.net)
for it in range(args.steps):
    bx, by = ds.get_batch()
    loss = model.train(bx, by)
    if it % 30 == 0:
        vx, vy = ds.validation()
        print(
            "iter %4d  train %.4f  target variance in batch %.4f"
            % (it, loss, by.var().item())
        )

vx, vy = ds.validation()
pred = model.predict(vx)
mse = ((pred - vy) ** 2).mean().item()
print("mean of last 20 training losses: %.4f" % np.mean(model.losses[-20:]))
print(
    "validation mse: %.4f   predictions between %.3f and %.3f (truth %.3f to %.3f)"
    % (mse, pred.min(), pred.max(), vy.min(), vy.max())
)

# a few sets by angle, as in the figure
for k in np.argsort(ds.vt)[::64]:
    print("   alpha %.2f   H true %.3f   H predicted %.3f" % (ds.vt[k], vy[k], pred[k]))

if args.prove:
    # how much the fitted values move compared with the truth
    share = (pred.std() / vy.std()).item()
    print("spread of predictions / spread of truth: %.3f" % share)
    print("fault shows:", "yes" if share < 0.5 else "no")
