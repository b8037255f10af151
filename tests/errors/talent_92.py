"""Tabular regression benchmark: one method class, several random splits, early stopping on validation."""
import argparse
import copy
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


def make_housing(n=1600, seed=0):
    rng = np.random.default_rng(seed)
    num = rng.normal(size=(n, 6)).astype(np.float32)
    cat = rng.integers(0, 5, size=(n, 2))
    effect = rng.normal(size=(2, 5))
    price = (
        2 * num[:, 0]
        - num[:, 1] * num[:, 2]
        + np.sin(2 * num[:, 3])
        + effect[0, cat[:, 0]]
        + effect[1, cat[:, 1]]
        + 0.2 * rng.normal(size=n)
    )
    return num, cat, (120 + 35 * price).astype(np.float32)


class Averager:
    def __init__(self):
        self.n, self.v = 0, 0.0

    def add(self, x, n=1):
        self.v = (self.v * self.n + x * n) / (self.n + n)
        self.n += n


class ResNetTabular(nn.Module):
    def __init__(self, d_num, categories, d_emb=4, d=64, n_blocks=2, dropout=0.1):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(c, d_emb) for c in categories)
        self.first = nn.Linear(d_num + d_emb * len(categories), d)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm1d(d),
                nn.Linear(d, 2 * d),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(2 * d, d),
            )
            for _ in range(n_blocks)
        )
        self.head = nn.Sequential(nn.BatchNorm1d(d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, x_num, x_cat):
        x = torch.cat([x_num] + [e(x_cat[:, i]) for i, e in enumerate(self.emb)], 1)
        x = self.first(x)
        for b in self.blocks:
            x = x + b(x)
        return self.head(x).squeeze(-1)


class Method:
    def __init__(self, args):
        self.args = args
        self.criterion = F.mse_loss

    def data_format(self, num, cat, y, split):
        tr = split["train"]
        self.num_mean, self.num_std = num[tr].mean(0), num[tr].std(0)
        self.y_mean, self.y_std = y[tr].mean(), y[tr].std()
        out = {}
        for part, idx in split.items():
            target = torch.from_numpy((y[idx] - self.y_mean) / self.y_std).reshape(
                -1, 1
            )
            if self.args.fixed:
                target = target.reshape(-1)
            out[part] = TensorDataset(
                torch.from_numpy((num[idx] - self.num_mean) / self.num_std),
                torch.from_numpy(cat[idx]),
                target,
            )
        return out

    def fit(self, data, categories, steps):
        self.model = ResNetTabular(data["train"][0][0].numel(), categories)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=2e-3, weight_decay=1e-5
        )
        loader = DataLoader(data["train"], batch_size=64, shuffle=True)
        best, best_state, step, epoch = 1e20, None, 0, 0
        self.loss_log = []
        while step < steps:
            self.model.train()
            tl = Averager()
            for x_num, x_cat, y in loader:
                pred = self.model(x_num, x_cat)
                loss = self.criterion(pred, y)
                paired = (pred.detach().reshape(-1) - y.reshape(-1)).pow(2).mean()
                self.loss_log.append((loss.item(), paired.item()))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                tl.add(loss.item(), len(y))
                step += 1
                if step >= steps:
                    break
            epoch += 1
            vl = self.validate(data["val"])
            if vl < best:
                best, best_state = vl, copy.deepcopy(self.model.state_dict())
            print(f"epoch {epoch} step {step} train loss {tl.v:.4f} val rmse {vl:.3f}")
        self.model.load_state_dict(best_state)
        return best

    @torch.no_grad()
    def validate(self, ds):
        self.model.eval()
        num, cat, y = ds.tensors
        pred = self.model(num, cat).numpy() * self.y_std
        return float(np.sqrt(np.mean((pred - y.numpy().reshape(-1) * self.y_std) ** 2)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240, help="total over the seeds")
    parser.add_argument("--seed_num", type=int, default=2)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    num, cat, y = make_housing()
    scores, gaps = [], []
    for seed in range(args.seed_num):
        torch.manual_seed(seed)
        perm = np.random.default_rng(seed).permutation(len(y))
        split = {"train": perm[:1024], "val": perm[1024:1300], "test": perm[1300:]}
        method = Method(args)
        data = method.data_format(num, cat, y, split)
        share = args.steps // args.seed_num + (seed < args.steps % args.seed_num)
        method.fit(data, [5, 5], share)
        scores.append(method.validate(data["test"]))
        gaps += [abs(a - b) for a, b in method.loss_log]
        print(f"seed {seed} test rmse {scores[-1]:.3f}")
    print(
        f"test rmse {np.mean(scores):.3f} +- {np.std(scores):.3f} (std of the target {y.std():.1f})"
    )
    if args.prove:
        print(
            f"largest gap between training loss and row-wise squared error {max(gaps):.4f}"
        )
        print("fault shows:", "yes" if max(gaps) > 1e-3 else "no")


if __name__ == "__main__":
    main()
