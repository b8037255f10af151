"""Two-layer GCN on a random citation-like graph (stochastic block model), full batch.

Model chosen on the validation nodes, test nodes looked at once at the end. Repeated for a few seeds.
"""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def sbm_graph(n=900, classes=6, feats=120, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    p = np.where(y[:, None] == y[None, :], 0.018, 0.0025)
    upper = np.triu(rng.random((n, n)) < p, 1)
    src, dst = np.nonzero(upper)
    # bag of words: each class likes some of the words
    taste = rng.random((classes, feats)) < 0.12
    x = rng.random((n, feats)) < np.where(taste[y], 0.06, 0.02)
    return (
        torch.tensor(x, dtype=torch.float32),
        torch.tensor(np.stack([src, dst]), dtype=torch.long),
        torch.tensor(y, dtype=torch.long),
    )


def normalised_adjacency(edges, n):
    """D^-1/2 (A + I) D^-1/2 as a sparse tensor"""
    loops = torch.arange(n)
    row = torch.cat([edges[0], edges[1], loops])
    col = torch.cat([edges[1], edges[0], loops])
    deg = torch.zeros(n).scatter_add_(0, row, torch.ones(len(row)))
    w = deg[row].rsqrt() * deg[col].rsqrt()
    return torch.sparse_coo_tensor(torch.stack([row, col]), w, (n, n)).coalesce()


def split_masks(y, per_class, n_val, n_test, seed):
    g = torch.Generator().manual_seed(seed)
    train = torch.zeros(len(y), dtype=torch.bool)
    for c in range(int(y.max()) + 1):
        members = (y == c).nonzero().flatten()
        train[members[torch.randperm(len(members), generator=g)[:per_class]]] = True
    rest = (~train).nonzero().flatten()
    rest = rest[torch.randperm(len(rest), generator=g)]
    val, test = torch.zeros_like(train), torch.zeros_like(train)
    val[rest[:n_val]] = True
    test[rest[n_val : n_val + n_test]] = True
    assert (
        not (train & val).any() and not (val & test).any() and not (train & test).any()
    )
    return train, val, test


class GraphConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))
        bound = math.sqrt(6.0 / (n_in + n_out))
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x, adj):
        return torch.sparse.mm(adj, x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, n_in, hidden, n_out, dropout):
        super().__init__()
        self.gc1 = GraphConv(n_in, hidden)
        self.gc2 = GraphConv(hidden, n_out)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.dropout(x, self.dropout, training=self.training)
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return self.gc2(x, adj)


@torch.no_grad()
def evaluate(model, x, adj, y, mask):
    model.eval()
    logits = model(x, adj)[mask]
    return (
        F.cross_entropy(logits, y[mask]).item(),
        (logits.argmax(1) == y[mask]).float().mean().item(),
    )


class EarlyStopper:
    def __init__(self, patience):
        self.patience = patience
        self.best = float("inf")
        self.bad = 0
        self.state = None
        self.epoch = -1

    def update(self, loss, model, epoch):
        """True when it is time to stop"""
        if loss < self.best:
            self.best, self.bad, self.epoch = loss, 0, epoch
            self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        else:
            self.bad += 1
        return self.bad >= self.patience

    def restore(self, model):
        model.load_state_dict(self.state)


def run(seed, args, x, adj, y):
    torch.manual_seed(seed)
    train, val, test = split_masks(y, args.per_class, 250, 400, seed)
    model = GCN(x.size(1), args.hidden, int(y.max()) + 1, args.dropout)
    # decay on the first layer only, as in the paper
    optimizer = torch.optim.Adam(
        [
            dict(params=model.gc1.parameters(), weight_decay=5e-3),
            dict(params=model.gc2.parameters(), weight_decay=0.0),
        ],
        lr=args.lr,
    )
    stopper = EarlyStopper(args.patience)

    for epoch in range(1, args.epochs + 1):
        model.train()
        optimizer.zero_grad()
        logits = model(x, adj)
        loss = F.cross_entropy(logits[train], y[train])
        loss.backward()
        optimizer.step()

        val_loss, val_acc = evaluate(model, x, adj, y, val)
        if epoch % 40 == 0 or epoch == 1:
            print(
                f"  seed {seed} epoch {epoch:3d} train {loss.item():.3f} val {val_loss:.3f} acc {val_acc:.3f}"
            )
        if stopper.update(val_loss, model, epoch):
            print(f"  stopped at {epoch}, best epoch {stopper.epoch}")
            break

    stopper.restore(model)
    return evaluate(model, x, adj, y, test)[1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=130)
    ap.add_argument("--hidden", type=int, default=24)
    ap.add_argument("--dropout", type=float, default=0.5)
    ap.add_argument("--lr", type=float, default=0.01)
    ap.add_argument("--patience", type=int, default=20)
    ap.add_argument("--per_class", type=int, default=20)
    ap.add_argument("--seeds", type=int, default=3)
    args = ap.parse_args()

    x, edges, y = sbm_graph()
    x = x / x.sum(1, keepdim=True).clamp(min=1)  # row normalise, per node
    adj = normalised_adjacency(edges, len(y))
    print(
        f"{len(y)} nodes, {edges.size(1)} edges, mean degree {2 * edges.size(1) / len(y):.1f}"
    )

    scores = []
    for seed in range(args.seeds):
        scores.append(run(seed, args, x, adj, y))
        print(f"seed {seed}: test acc {scores[-1]:.3f}")
    print(f"test accuracy {np.mean(scores):.3f} +- {np.std(scores):.3f}")


if __name__ == "__main__":
    main()
