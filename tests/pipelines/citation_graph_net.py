# Semi-supervised node classification on a stochastic block "citation" graph.
# GCN vs. GraphSAGE-mean, little grid over dropout / lr, best config by validation.
import argparse
import itertools
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument(
    "--epochs",
    type=int,
    default=60,
    help="max. epochs (= full batch updates) of each configuration",
)
parser.add_argument("--patience", type=int, default=20)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--quiet", action="store_true")


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def citation_graph(n=900, classes=5, n_words=120, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    p = np.where(y[:, None] == y[None, :], 0.012, 0.0018)
    upper = np.triu(rng.random((n, n)) < p, k=1)
    adj = upper | upper.T
    topic = rng.dirichlet(np.full(n_words, 0.25), classes)
    background = rng.dirichlet(np.full(n_words, 1.0))
    x = np.stack(
        [rng.multinomial(18, 0.35 * topic[c] + 0.65 * background) for c in y]
    ).astype(np.float32)
    x = x / x.sum(1, keepdims=True)
    return torch.from_numpy(x), torch.from_numpy(adj), torch.from_numpy(y)


def masks(y, per_class=20, n_val=200, seed=0):
    g = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=g)
    train = torch.cat(
        [order[y[order] == c][:per_class] for c in range(int(y.max()) + 1)]
    )
    in_train = torch.zeros(len(y), dtype=torch.bool)
    in_train[train] = True
    rest = order[~in_train[order]]
    out = {"train": in_train}
    for name, idx in (("val", rest[:n_val]), ("test", rest[n_val:])):
        m = torch.zeros(len(y), dtype=torch.bool)
        m[idx] = True
        out[name] = m
    assert int(sum(m.int() for m in out.values()).max()) == 1
    return out


def sym_norm(adj):
    a = adj.float() + torch.eye(len(adj))
    d = a.sum(1).rsqrt()
    return (d[:, None] * a * d[None, :]).to_sparse_coo().coalesce()


def row_norm(adj):
    a = adj.float()
    return (a / a.sum(1, keepdim=True).clamp(min=1)).to_sparse_coo().coalesce()


class GCNConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(cin, cout))
        self.bias = nn.Parameter(torch.zeros(cout))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, a):
        return torch.sparse.mm(a, x @ self.weight) + self.bias


class SAGEConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.own = nn.Linear(cin, cout)
        self.neigh = nn.Linear(cin, cout, bias=False)

    def forward(self, x, a):
        return self.own(x) + self.neigh(torch.sparse.mm(a, x))


class GNN(nn.Module):
    def __init__(self, conv, cin, hidden, cout, dropout):
        super().__init__()
        self.conv1, self.conv2 = conv(cin, hidden), conv(hidden, cout)
        self.dropout = dropout

    def forward(self, x, a):
        x = F.dropout(x, self.dropout, self.training)
        x = F.relu(self.conv1(x, a))
        x = F.dropout(x, self.dropout, self.training)
        return F.log_softmax(self.conv2(x, a), dim=1)


@torch.no_grad()
def test(model, x, a, y, split):
    model.eval()
    out = model(x, a)
    pred = out.argmax(1)
    acc = {k: (pred[m] == y[m]).float().mean().item() for k, m in split.items()}
    return acc, F.nll_loss(out[split["val"]], y[split["val"]]).item()


def run_config(kind, dropout, lr, data, args):
    x, adj, y, split = data
    set_seed(args.seed)  # same start for every configuration
    if kind == "gcn":
        a, conv = sym_norm(adj), GCNConv
    else:
        a, conv = row_norm(adj), SAGEConv
    model = GNN(conv, x.size(1), 32, int(y.max()) + 1, dropout)
    # as in the paper: weight decay only on the first layer
    optimizer = torch.optim.Adam(
        [
            dict(params=model.conv1.parameters(), weight_decay=5e-4),
            dict(params=model.conv2.parameters(), weight_decay=0),
        ],
        lr=lr,
    )

    best = {"val_loss": float("inf")}
    bad = 0
    for epoch in range(1, args.epochs + 1):
        model.train()
        optimizer.zero_grad()
        out = model(x, a)
        loss = F.nll_loss(out[split["train"]], y[split["train"]])
        loss.backward()
        optimizer.step()

        acc, val_loss = test(model, x, a, y, split)
        if val_loss < best["val_loss"]:
            best = {
                "val_loss": val_loss,
                "epoch": epoch,
                "val": acc["val"],
                "state": {k: v.clone() for k, v in model.state_dict().items()},
            }
            bad = 0
        else:
            bad += 1
            if bad >= args.patience:
                break
        if not args.quiet and epoch % 20 == 0:
            print(
                f"    {epoch:03d} loss {loss.item():.4f} train {acc['train']:.3f} val {acc['val']:.3f} ({val_loss:.4f})"
            )
    model.load_state_dict(best["state"])
    return best, model, a


def main():
    args = parser.parse_args()
    set_seed(args.seed)
    x, adj, y = citation_graph()
    # row-normalised bag of words are tiny numbers, bring them to unit scale
    x = x / x.pow(2).mean().sqrt()
    split = masks(y)
    print(
        "nodes",
        len(y),
        "edges",
        int(adj.sum()) // 2,
        {k: int(m.sum()) for k, m in split.items()},
    )

    results = []
    for kind, dropout, lr in itertools.product(["gcn", "sage"], [0.3, 0.6], [0.01]):
        t0 = time.time()
        best, model, a = run_config(kind, dropout, lr, (x, adj, y, split), args)
        print(
            f"{kind:5s} dropout {dropout} lr {lr}: val acc {best['val']:.3f} val loss {best['val_loss']:.4f} "
            f"@ epoch {best['epoch']} ({time.time() - t0:.1f}s)"
        )
        results.append((best["val_loss"], kind, dropout, lr, model, a))

    _, kind, dropout, lr, model, a = min(results, key=lambda r: r[0])
    acc, _ = test(model, x, a, y, split)
    print(f"selected {kind} dropout {dropout} lr {lr}: test acc {acc['test']:.3f}")


if __name__ == "__main__":
    main()
