"""Predict log sale price of a house from its photo embedding and its listing fields."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


def make_houses(n, seed, photo_dim=32, n_fields=10):
    g = torch.Generator().manual_seed(seed)
    world = torch.Generator().manual_seed(1234)
    mix = torch.randn(4, photo_dim, generator=world)
    w_fields = torch.randn(n_fields, generator=world)
    look = torch.randn(n, 4, generator=g)
    photos = torch.tanh(look @ mix) + 0.1 * torch.randn(n, photo_dim, generator=g)
    fields = torch.randn(n, n_fields, generator=g)
    price = (
        0.35 * (fields @ w_fields)
        + 0.6 * look[:, 0] * look[:, 1].sign()
        + 0.8 * torch.sin(look[:, 2])
        + 0.05 * torch.randn(n, generator=g)
    )
    return photos, fields, price + 12.0


class Tower(nn.Module):
    def __init__(self, d_in, d_out, hidden=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(d_in, hidden),
            nn.ReLU(),
            nn.Linear(hidden, d_out),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.body(x)


class PriceNet(nn.Module):
    def __init__(self, photo_dim, n_fields):
        super().__init__()
        self.photo_tower = Tower(photo_dim, 32)
        self.field_tower = Tower(n_fields, 32)
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, photos, fields):
        h = torch.cat([self.photo_tower(photos), self.field_tower(fields)], dim=1)
        return self.head(h).squeeze(1)


class HouseTable:
    """Keeps the whole training set in memory and hands out mini-batches."""

    def __init__(self, photos, fields, price, batch_size, seed, fixed):
        self.photos, self.fields, self.price = photos, fields, price
        self.batch_size = batch_size
        self.gen = torch.Generator().manual_seed(seed)
        self.fixed = fixed

    def __len__(self):
        return math.ceil(len(self.price) / self.batch_size)

    def reshuffle(self):
        perm = torch.randperm(len(self.price), generator=self.gen)
        self.fields = self.fields[perm]
        self.price = self.price[perm]
        if self.fixed:
            self.photos = self.photos[perm]

    def __iter__(self):
        for i in range(0, len(self.price), self.batch_size):
            s = slice(i, i + self.batch_size)
            yield self.photos[s], self.fields[s], self.price[s]


@torch.no_grad()
def evaluate(model, photos, fields, price, mu, sd):
    model.eval()
    pred = model(photos, fields) * sd + mu
    mae = (pred - price).abs().mean().item()
    r2 = 1 - ((pred - price) ** 2).sum() / ((price - price.mean()) ** 2).sum()
    return mae, r2.item()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    tr = make_houses(3072, seed=1)
    va = make_houses(768, seed=2)
    mu, sd = tr[2].mean(), tr[2].std()

    table = HouseTable(
        tr[0], tr[1], (tr[2] - mu) / sd, args.batch_size, args.seed, args.fixed
    )
    model = PriceNet(tr[0].shape[1], tr[1].shape[1])
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)

    step = 0
    for epoch in range(args.epochs):
        if epoch > 0:
            table.reshuffle()
        model.train()
        total = 0.0
        for photos, fields, price in table:
            loss = F.smooth_l1_loss(model(photos, fields), price)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            step += 1
        mae, r2 = evaluate(model, *va, mu, sd)
        print(
            f"epoch {epoch:2d}  step {step:4d}  train {total / len(table):.4f}  "
            f"val mae {mae:.4f}  val r2 {r2:.3f}"
        )

    print(f"final val mae {mae:.4f} (log price), r2 {r2:.3f}")

    if args.prove:
        known = {tuple(f.tolist()): k for k, f in enumerate(tr[1])}
        rows = torch.tensor([known[tuple(f.tolist())] for f in table.fields])
        same = (table.photos == tr[0][rows]).all(dim=1).float().mean().item()
        print(f"listings whose photo is their own: {100 * same:.1f}%")
        print("fault shows:", "yes" if same < 0.9 else "no")


if __name__ == "__main__":
    main()
