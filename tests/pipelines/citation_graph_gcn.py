#!/usr/bin/env python
# Node classification with a two-layer GCN, full batch, a few labels per class (as on Cora),
# three seeds, mean and deviation of the test accuracy.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def community_graph(n=420, classes=5, dim=60, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    same = y[:, None] == y[None, :]
    p = torch.where(same, torch.tensor(0.035), torch.tensor(0.004))
    upper = torch.triu(torch.rand(n, n, generator=g) < p, diagonal=1)
    edges = upper.nonzero().t()
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    topic = torch.rand(classes, dim, generator=g) ** 3 * 0.5
    words = (torch.rand(n, dim, generator=g) < topic[y]).float()
    words = words / words.sum(1, keepdim=True).clamp(min=1)  # row normalisation
    return words, y, edges


def normalised_adjacency(edges, n):
    loops = torch.arange(n).repeat(2, 1)
    idx = torch.cat([edges, loops], dim=1)
    deg = torch.bincount(idx[0], minlength=n).float()
    w = deg[idx[0]].rsqrt() * deg[idx[1]].rsqrt()
    return torch.sparse_coo_tensor(idx, w, (n, n), check_invariants=True).coalesce()


def drop_edges(edges, p):
    """Drops both directions of an edge together."""
    half = edges.size(1) // 2
    keep = torch.rand(half) >= p
    return edges[:, keep.repeat(2)]


def planetoid_split(y, per_class, n_val, seed):
    g = torch.Generator().manual_seed(seed)
    perm = torch.randperm(len(y), generator=g)
    train = torch.zeros(len(y), dtype=torch.bool)
    for c in y.unique():
        train[perm[y[perm] == c][:per_class]] = True
    rest = perm[~train[perm]]
    val, test = torch.zeros_like(train), torch.zeros_like(train)
    val[rest[:n_val]] = True
    test[rest[n_val:]] = True
    assert (
        not (train & val).any() and not (train & test).any() and not (val & test).any()
    )
    return train, val, test


class GraphConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.lin = nn.Linear(cin, cout, bias=False)
        self.bias = nn.Parameter(torch.zeros(cout))
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, adj, x):
        return torch.sparse.mm(adj, self.lin(x)) + self.bias


class GCN(nn.Module):
    def __init__(self, cin, hid, cout, dropout):
        super().__init__()
        self.conv1, self.conv2 = GraphConv(cin, hid), GraphConv(hid, cout)
        self.p = dropout

    def forward(self, adj, x):
        x = F.dropout(x, self.p, training=self.training)
        x = F.relu(self.conv1(adj, x))
        x = F.dropout(x, self.p, training=self.training)
        return self.conv2(adj, x)


@torch.no_grad()
def test_step(model, adj, x, y, masks):
    model.eval()
    out = model(adj, x)
    res = []
    for m in masks:
        res.append(
            (
                F.cross_entropy(out[m], y[m]).item(),
                (out[m].argmax(-1) == y[m]).float().mean().item(),
            )
        )
    return res


def run(x, y, edges, seed, args):
    torch.manual_seed(seed)
    train, val, test = planetoid_split(y, args.per_class, 100, seed)
    full_adj = normalised_adjacency(edges, len(y))
    model = GCN(x.size(1), args.hidden, int(y.max()) + 1, args.dropout)
    # L2 on the first layer only, as in Kipf & Welling
    opt = torch.optim.Adam(
        [
            {"params": model.conv1.parameters(), "weight_decay": 5e-4},
            {"params": model.conv2.parameters(), "weight_decay": 0.0},
        ],
        lr=args.lr,
    )

    best_val, best_test, best_epoch = float("inf"), 0.0, -1
    for epoch in range(1, args.epochs + 1):
        model.train()
        adj = (
            normalised_adjacency(drop_edges(edges, args.drop_edge), len(y))
            if args.drop_edge > 0
            else full_adj
        )
        opt.zero_grad()
        loss = F.cross_entropy(model(adj, x)[train], y[train])
        loss.backward()
        opt.step()

        (vloss, vacc), (_, tacc) = test_step(model, full_adj, x, y, (val, test))
        if vloss < best_val:  # the epoch is chosen by validation
            best_val, best_test, best_epoch = vloss, tacc, epoch
        if epoch % 25 == 0:
            print(
                f"  epoch {epoch:3d} loss {loss.item():.3f} val loss {vloss:.3f} acc {vacc:.3f}"
            )
    print(f"seed {seed}: epoch {best_epoch}, test acc {best_test:.3f}")
    return best_test


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=75, help="one optimiser step each")
    ap.add_argument("--seeds", type=int, default=3)
    ap.add_argument("--hidden", type=int, default=32)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--dropout", type=float, default=0.5)
    ap.add_argument("--drop-edge", type=float, default=0.1)
    ap.add_argument("--per-class", type=int, default=15)
    args = ap.parse_args()

    x, y, edges = community_graph()
    print(
        f"{len(y)} nodes, {edges.size(1) // 2} edges, majority class {torch.bincount(y).max().item() / len(y):.3f}"
    )
    acc = torch.tensor([run(x, y, edges, s, args) for s in range(args.seeds)])
    print(f"test accuracy {acc.mean():.3f} +- {acc.std(unbiased=False):.3f}")
