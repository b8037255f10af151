"""Predict log k_cat of enzyme variants from composition descriptors of the active site."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def variants(n, rng):
    aa = rng.integers(0, 20, size=(n, 6))  # six mutated positions
    # hydropathy, volume, charge, helix
    prop = np.random.default_rng(0).normal(size=(20, 4))
    d = prop[aa]
    act = (
        0.8 * d[:, 0, 0]
        - 0.6 * d[:, 1, 1] * d[:, 2, 1]
        + 0.7 * np.tanh(d[:, 3, 2] + d[:, 4, 2])
        - 0.4 * np.abs(d[:, 5, 1])
        + 0.1 * rng.normal(size=n)
    )
    return (
        torch.tensor(d.reshape(n, -1), dtype=torch.float32),
        torch.tensor(act, dtype=torch.float32),
    )


class ResidualMLP(nn.Module):
    def __init__(self, d_in, width=64, blocks=2, p=0.2, fixed=False):
        super().__init__()
        self.p = p
        self.fixed = fixed
        self.stem = nn.Linear(d_in, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(blocks))
        self.out = nn.Linear(width, 1)

    def drop(self, h):
        if self.fixed:
            return F.dropout(h, p=self.p, training=self.training)
        return F.dropout(h, p=self.p)

    def forward(self, x):
        h = self.stem(x)
        for norm, up, down in zip(self.norms, self.up, self.down):
            z = F.gelu(up(norm(h)))
            h = h + self.drop(down(self.drop(z)))
        return self.out(h).squeeze(-1)


def predict(model, loader):
    model.eval()
    with torch.no_grad():
        return torch.cat([model(x) for x, _ in loader])


def spearman(a, b):
    ra = a.argsort().argsort().float()
    rb = b.argsort().argsort().float()
    return torch.corrcoef(torch.stack([ra, rb]))[0, 1].item()


def fit(model, train_loader, valid_loader, y_valid, epochs, lr):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, lr, epochs=epochs, steps_per_epoch=len(train_loader)
    )
    best, best_state = float("inf"), None
    for epoch in range(epochs):
        model.train()
        losses = []
        for x, y in train_loader:
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
        pred = predict(model, valid_loader)
        rmse = (pred - y_valid).pow(2).mean().sqrt().item()
        if rmse < best:
            best = rmse
            best_state = {k: v.clone() for k, v in model.state_dict().items()}
        print(
            f"epoch {epoch:2d}  mse {np.mean(losses):.4f}  valid rmse {rmse:.4f}  "
            f"spearman {spearman(pred, y_valid):.3f}"
        )
    model.load_state_dict(best_state)
    return best


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=15)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--dropout", type=float, default=0.2)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    a = p.parse_args()

    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    xt, yt = variants(2000, rng)
    xv, yv = variants(500, rng)
    xs, ys = variants(500, rng)
    train_loader = DataLoader(
        TensorDataset(xt, yt),
        64,
        shuffle=True,
        generator=torch.Generator().manual_seed(1),
    )
    valid_loader = DataLoader(TensorDataset(xv, yv), 250)
    test_loader = DataLoader(TensorDataset(xs, ys), 250)

    model = ResidualMLP(xt.shape[1], p=a.dropout, fixed=a.fixed)
    best = fit(model, train_loader, valid_loader, yv, a.epochs, a.lr)
    pred = predict(model, test_loader)
    rmse = (pred - ys).pow(2).mean().sqrt().item()
    print(
        f"best valid rmse {best:.4f}; test rmse {rmse:.4f}, spearman {spearman(pred, ys):.3f}"
    )

    if a.prove:
        again = predict(model, test_loader)
        diff = (pred - again).abs().max().item()
        print(f"two predictions of the same variants differ by at most {diff:.5f}")
        print("fault shows:", "yes" if diff > 1e-6 else "no")


if __name__ == "__main__":
    main()
