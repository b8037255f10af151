"""Semi-supervised node classification with a two-layer GCN on a made-up citation graph."""
import argparse
import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--weight_decay", type=float, default=5e-4)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--dropout", type=float, default=0.5)
parser.add_argument("--patience", type=int, default=60)
parser.add_argument("--runs", type=int, default=2)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument(
    "--fastmode", action="store_true", help="validate every tenth epoch only"
)


def citation_graph(seed, n=1200, classes=6, words=250):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    edges = set()
    by_class = [np.flatnonzero(y == c) for c in range(classes)]
    for i in range(n):
        for _ in range(rng.poisson(2)):
            j = rng.choice(by_class[y[i]]) if rng.random() < 0.78 else rng.integers(n)
            if i != j:
                edges.add((min(i, int(j)), max(i, int(j))))
    topic = rng.dirichlet(np.full(words, 0.3), size=classes)
    background = rng.dirichlet(np.full(words, 1.0))
    x = np.zeros((n, words), dtype=np.float32)
    for i in range(n):
        picks = rng.choice(words, size=14, p=0.35 * topic[y[i]] + 0.65 * background)
        x[i, picks] = 1.0
    return np.array(sorted(edges)).T, x, y


def normalized_adjacency(edges, n):
    """D^-1/2 (A + I) D^-1/2 as a sparse tensor."""
    src = np.concatenate([edges[0], edges[1], np.arange(n)])
    dst = np.concatenate([edges[1], edges[0], np.arange(n)])
    deg = np.bincount(dst, minlength=n).astype(np.float32)
    value = 1.0 / np.sqrt(deg[src] * deg[dst])
    index = torch.tensor(np.stack([dst, src]))
    value = torch.tensor(value, dtype=torch.float32)
    return torch.sparse_coo_tensor(
        index, value, (n, n), check_invariants=True
    ).coalesce()


def split_masks(y, per_class, n_val, seed):
    rng = np.random.default_rng(seed)
    train = np.concatenate(
        [
            rng.choice(np.flatnonzero(y == c), per_class, replace=False)
            for c in np.unique(y)
        ]
    )
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), train))
    masks = []
    for part in (train, rest[:n_val], rest[n_val:]):
        m = torch.zeros(len(y), dtype=torch.bool)
        m[torch.as_tensor(part)] = True
        masks.append(m)
    return masks


class GraphConvolution(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        return torch.sparse.mm(adj, x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, n_feat, hidden, n_class, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(n_feat, hidden)
        self.gc2 = GraphConvolution(hidden, n_class)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.dropout(x, self.dropout, training=self.training)
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def accuracy(logp, y):
    return (logp.argmax(1) == y).double().mean().item()


@torch.no_grad()
def score(model, x, adj, y, mask):
    model.eval()
    logp = model(x, adj)
    return F.nll_loss(logp[mask], y[mask]).item(), accuracy(logp[mask], y[mask])


def run(args, seed, x, adj, y, masks):
    torch.manual_seed(seed)
    train_mask, val_mask, test_mask = masks
    model = GCN(x.shape[1], args.hidden, int(y.max()) + 1, args.dropout)
    # as in the paper, only the first layer is decayed
    optimizer = torch.optim.Adam(
        [
            {"params": model.gc1.parameters(), "weight_decay": args.weight_decay},
            {"params": model.gc2.parameters(), "weight_decay": 0.0},
        ],
        lr=args.lr,
    )

    best_val, best_state, best_epoch = float("inf"), None, 0
    every = 10 if args.fastmode else 1
    for epoch in range(args.epochs):
        t = time.time()
        model.train()
        optimizer.zero_grad()
        output = model(x, adj)
        loss_train = F.nll_loss(output[train_mask], y[train_mask])
        loss_train.backward()
        optimizer.step()

        if epoch % every == 0 or epoch == args.epochs - 1:
            loss_val, acc_val = score(model, x, adj, y, val_mask)
            if loss_val < best_val:
                best_val, best_epoch = loss_val, epoch
                best_state = copy.deepcopy(model.state_dict())
            elif epoch - best_epoch >= args.patience:
                print(f"stopped at epoch {epoch}")
                break
            if epoch % 25 == 0:
                print(
                    f"Epoch: {epoch:04d} loss_train: {loss_train.item():.4f} loss_val: {loss_val:.4f} "
                    f"acc_val: {acc_val:.4f} time: {time.time() - t:.4f}s"
                )

    model.load_state_dict(best_state)
    loss_test, acc_test = score(model, x, adj, y, test_mask)
    print(
        f"seed {seed}: best epoch {best_epoch}, test loss {loss_test:.4f} accuracy {acc_test:.4f}"
    )
    return acc_test


def main():
    args = parser.parse_args()
    edges, features, labels = citation_graph(args.seed)
    n = len(labels)
    print(f"{n} papers, {edges.shape[1]} citations, {features.shape[1]} words")
    adj = normalized_adjacency(edges, n)
    x = torch.from_numpy(features / np.maximum(features.sum(1, keepdims=True), 1))
    y = torch.from_numpy(labels)
    masks = split_masks(labels, per_class=20, n_val=300, seed=args.seed)
    assert not (masks[0] & masks[1]).any() and not (masks[1] & masks[2]).any()

    accs = [run(args, args.seed + r, x, adj, y, masks) for r in range(args.runs)]
    print(
        f"test accuracy {np.mean(accs):.4f} +- {np.std(accs):.4f} over {args.runs} runs"
    )


if __name__ == "__main__":
    main()
