import argparse
import math
from functools import lru_cache

import torch
import torch.nn as nn
import torch.nn.functional as F

# Node-wise prediction of expected queue length on a fixed district map.
# Every instance has its own demands and service rates; the road map is shared.


@lru_cache(maxsize=4)
def district_edges(side):
    """4-neighbour grid with a few diagonal shortcuts, both directions."""
    pairs = []
    for r in range(side):
        for c in range(side):
            v = r * side + c
            if c + 1 < side:
                pairs.append((v, v + 1))
            if r + 1 < side:
                pairs.append((v, v + side))
            if (r + c) % 3 == 0 and r + 1 < side and c + 1 < side:
                pairs.append((v, v + side + 1))
    e = torch.tensor(pairs).t()
    return torch.cat([e, e.flip(0)], dim=1)


def simulate(n, side, gen):
    nodes = side * side
    demand = torch.rand(n, nodes, generator=gen).pow(2) * 2
    rate = 0.5 + torch.rand(n, nodes, generator=gen)
    src, dst = district_edges(side)
    deg = torch.zeros(nodes).index_add_(0, dst, torch.ones(len(dst)))
    load = demand.clone()
    for _ in range(2):
        spill = F.relu(load - rate)
        inflow = torch.zeros_like(load).index_add_(1, dst, spill[:, src]) / deg
        load = 0.4 * load + 0.8 * inflow + 0.3 * demand
    target = (load / rate).log1p()
    return torch.stack([demand, rate], dim=-1), target + 0.02 * torch.randn(
        target.shape, generator=gen
    )


class GCNLayer(nn.Module):
    def __init__(self, din, dout):
        super().__init__()
        self.lin_self = nn.Linear(din, dout)
        self.lin_nb = nn.Linear(din, dout, bias=False)

    def forward(self, x, edge_index):
        src, dst = edge_index
        ones = torch.ones(len(dst))
        deg = torch.zeros(x.shape[0]).index_add_(0, dst, ones).clamp_min(1)
        agg = torch.zeros_like(x).index_add_(0, dst, x[src]) / deg[:, None]
        return self.lin_self(x) + self.lin_nb(agg)


class GCNEncoder(nn.Module):
    def __init__(self, side, dim=48, layers=3, fixed=False):
        super().__init__()
        self.side, self.fixed = side, fixed
        self.init_embedding = nn.Linear(2, dim)
        self.layers = nn.ModuleList(GCNLayer(dim, dim) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))

    def batch_edges(self, bs, num_nodes):
        edge_index = district_edges(self.side)
        if self.fixed:
            shift = torch.arange(bs).repeat_interleave(edge_index.shape[1]) * num_nodes
            edge_index = edge_index.repeat(1, bs) + shift
        return edge_index

    def forward(self, feats):
        h = self.init_embedding(feats)
        bs, num_nodes, dim = h.shape
        h = h.reshape(bs * num_nodes, dim)
        edge_index = self.batch_edges(bs, num_nodes)
        for layer, norm in zip(self.layers, self.norms):
            h = h + F.relu(layer(norm(h), edge_index))
        return h.view(bs, num_nodes, dim)


class QueueModel(nn.Module):
    def __init__(self, side, fixed):
        super().__init__()
        self.encoder = GCNEncoder(side, fixed=fixed)
        self.head = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, feats):
        return self.head(self.encoder(feats)).squeeze(-1)


@torch.no_grad()
def evaluate(model, feats, target, bs):
    model.eval()
    pred = torch.cat([model(f) for f in feats.split(bs)])
    model.train()
    mse = F.mse_loss(pred, target).item()
    r2 = 1 - mse / target.var().item()
    return math.sqrt(mse), r2


@torch.no_grad()
def consistency(model, feats):
    together = model(feats)
    single = torch.cat([model(feats[i : i + 1]) for i in range(len(feats))])
    return (together - single).abs().mean().item()


def run(opt):
    torch.manual_seed(opt.seed)
    gen = torch.Generator().manual_seed(opt.seed)
    x_train, y_train = simulate(1024, opt.side, gen)
    x_val, y_val = simulate(256, opt.side, gen)

    model = QueueModel(opt.side, opt.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=opt.lr)
    lr_sched = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=opt.lr,
        total_steps=opt.epochs * math.ceil(len(x_train) / opt.batch_size),
    )

    for epoch in range(opt.epochs):
        total = 0.0
        for idx in torch.randperm(len(x_train), generator=gen).split(opt.batch_size):
            loss = F.mse_loss(model(x_train[idx]), y_train[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lr_sched.step()
            total += loss.item() * len(idx)
        rmse, r2 = evaluate(model, x_val, y_val, opt.batch_size)
        print(
            f"[{epoch + 1}/{opt.epochs}] train mse {total / len(x_train):.4f} | val rmse {rmse:.4f} r2 {r2:.3f}"
        )

    if opt.prove:
        gap = consistency(model, x_val[:16])
        print(f"mean difference joint vs. single encoding: {gap:.6f}")
        print("fault shows: yes" if gap > 1e-4 else "fault shows: no")


if __name__ == "__main__":
    ap = argparse.ArgumentParser(
        description="queue length regression on a district map"
    )
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--side", type=int, default=6)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--seed", type=int, default=21)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    run(ap.parse_args())
