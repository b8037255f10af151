"""
Message passing network on random "molecules": several labels per graph, some of them missing.
Assignment 3, graph learning course. Graphs of a batch are put together into one big graph.
"""
import argparse
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

ATOMS = 5
BONDS = 3
TASKS = ["weight", "rings", "polarity"]


@dataclass
class Graph:
    atom: torch.Tensor  # (n,)
    edge: torch.Tensor  # (2, e), both directions
    bond: torch.Tensor  # (e,)
    y: torch.Tensor  # (3,), NaN where it was not measured


def random_molecule(rng):
    n = int(rng.integers(5, 15))
    atom = rng.choice(ATOMS, size=n, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    src, dst = [], []
    for v in range(1, n):
        src.append(int(rng.integers(max(0, v - 3), v)))
        dst.append(v)
    extra = int(rng.integers(0, 3))
    have = set(zip(src, dst))
    rings = 0
    for _ in range(extra):
        a, b = sorted(rng.choice(n, 2, replace=False).tolist())
        if (a, b) not in have:
            have.add((a, b))
            src.append(a)
            dst.append(b)
            rings += 1
    bond = rng.integers(0, BONDS, len(src))
    mass = np.array([12.0, 1.0, 16.0, 14.0, 32.0])
    charge = np.array([0.0, 0.2, -0.7, -0.5, -0.2])
    polarity = np.sum(np.abs(charge[atom[src]] - charge[atom[dst]]) * (1 + 0.5 * bond))
    y = np.array([mass[atom].sum() / 100, rings, polarity]) + rng.normal(0, 0.02, 3)
    y[rng.random(3) < 0.15] = np.nan
    s, d = np.array(src + dst), np.array(dst + src)
    return Graph(
        torch.tensor(atom),
        torch.tensor(np.stack([s, d])),
        torch.tensor(np.concatenate([bond, bond])),
        torch.tensor(y, dtype=torch.float32),
    )


def collate(graphs):
    sizes = torch.tensor([len(g.atom) for g in graphs])
    offset = torch.cumsum(sizes, 0) - sizes
    atom = torch.cat([g.atom for g in graphs])
    edge = torch.cat([g.edge + o for g, o in zip(graphs, offset)], dim=1)
    bond = torch.cat([g.bond for g in graphs])
    graph_of = torch.repeat_interleave(torch.arange(len(graphs)), sizes)
    return atom, edge, bond, graph_of, torch.stack([g.y for g in graphs])


class MPLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.bond = nn.Embedding(BONDS, d)
        self.message = nn.Linear(d, d)
        self.update = nn.GRUCell(d, d)

    def forward(self, h, edge, bond):
        src, dst = edge
        m = torch.relu(self.message(h[src]) + self.bond(bond))
        agg = torch.zeros_like(h).index_add_(0, dst, m)
        return self.update(agg, h)


class MPNN(nn.Module):
    def __init__(self, d=40, layers=3):
        super().__init__()
        self.embed = nn.Embedding(ATOMS, d)
        self.layers = nn.ModuleList([MPLayer(d) for _ in range(layers)])
        self.readout = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Dropout(0.05))
        self.heads = nn.ModuleDict({t: nn.Linear(d, 1) for t in TASKS})

    def forward(self, atom, edge, bond, graph_of, n_graphs):
        h0 = h = self.embed(atom)
        for layer in self.layers:
            h = layer(h, edge, bond)
        both = torch.cat([h0, h], dim=1)
        pooled = (
            torch.zeros(n_graphs, both.size(1)).index_add_(0, graph_of, both) / 10.0
        )
        z = self.readout(pooled)
        return torch.cat([self.heads[t](z) for t in TASKS], dim=1)


def masked_l1(pred, y):
    known = ~torch.isnan(y)
    diff = (pred - torch.where(known, y, pred.detach())).abs()
    return (diff * known).sum() / known.sum().clamp(min=1)


def evaluate(model, loader, std):
    """Mean absolute error of each task, in original units."""
    model.eval()
    err, cnt = torch.zeros(len(TASKS)), torch.zeros(len(TASKS))
    with torch.no_grad():
        for *inputs, y in loader:
            pred = model(*inputs, n_graphs=len(y))
            known = ~torch.isnan(y)
            err += torch.nan_to_num((pred - y).abs()).mul(known).sum(0)
            cnt += known.sum(0)
    return err / cnt * std


def run(args):
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    graphs = [random_molecule(rng) for _ in range(1500)]
    train, valid, test = graphs[:1100], graphs[1100:1300], graphs[1300:]

    ys = torch.stack([g.y for g in train])
    mean = torch.nanmean(ys, dim=0)
    std = torch.sqrt(torch.nanmean((ys - mean) ** 2, dim=0))
    for g in graphs:
        g.y = (g.y - mean) / std

    train_loader = DataLoader(train, batch_size=50, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid, batch_size=100, collate_fn=collate)
    test_loader = DataLoader(test, batch_size=100, collate_fn=collate)

    model = MPNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, amsgrad=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimizer, T_0=max(1, args.epochs // 2)
    )
    print(
        "guess the mean:",
        dict(zip(TASKS, (torch.nanmean(ys.sub(mean).abs(), 0)).tolist())),
    )

    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for i, (*inputs, y) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = masked_l1(model(*inputs, n_graphs=len(y)), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step(epoch + (i + 1) / len(train_loader))
            total += loss.item()
        mae = evaluate(model, valid_loader, std)
        print(
            f"epoch {epoch:2d} loss {total / len(train_loader):.3f} "
            + " ".join(f"{t} {m:.3f}" for t, m in zip(TASKS, mae.tolist()))
        )

    mae = evaluate(model, test_loader, std)
    print("test MAE", {t: round(m, 3) for t, m in zip(TASKS, mae.tolist())})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=4)
    run(parser.parse_args())
