# Node classification on a synthetic citation graph (course project, part 2)
# dense adjacency, GCN layers written by hand
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_graph(n=560, classes=6, feats=64, seed=0):
    """Stochastic block model with bag-of-words features per paper."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, classes, (n,), generator=g)
    same = label[:, None] == label[None, :]
    prob = torch.where(same, torch.tensor(0.03), torch.tensor(0.006))
    upper = torch.triu(torch.rand(n, n, generator=g) < prob, diagonal=1)
    adj = (upper | upper.T).float()
    topic = torch.rand(classes, feats, generator=g) < 0.22
    p_word = torch.where(topic[label], torch.tensor(0.22), torch.tensor(0.10))
    words = (torch.rand(n, feats, generator=g) < p_word).float()
    perm = torch.randperm(n, generator=g)
    masks = {}
    for name, part in zip(
        ("train", "val", "test"), (perm[:140], perm[140:340], perm[340:])
    ):
        m = torch.zeros(n, dtype=torch.bool)
        m[part] = True
        masks[name] = m
    return adj, words, label, masks


def normalise(adj):
    a = adj + torch.eye(adj.size(0))
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d[None, :]


class GraphConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out, bias=False)
        self.bias = nn.Parameter(torch.zeros(n_out))
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, adj, x):
        return adj @ self.linear(x) + self.bias


class GCN(nn.Module):
    def __init__(
        self, n_feats, hidden, n_classes, depth=3, dropout=0.5, registered=False
    ):
        super().__init__()
        self.dropout = dropout
        self.encode = nn.Linear(n_feats, hidden)
        self.layers = [GraphConv(hidden, hidden) for _ in range(depth)]
        if registered:
            self.layers = nn.ModuleList(self.layers)
        self.norm = nn.LayerNorm(hidden)
        self.classify = nn.Linear(hidden, n_classes)

    def forward(self, adj, x):
        h = F.relu(self.encode(x))
        for layer in self.layers:
            h = F.dropout(h, self.dropout, self.training)
            h = F.relu(layer(adj, h)) + h
        return self.classify(self.norm(h))


def drop_edges(adj, rate, generator):
    keep = torch.triu(torch.rand(adj.shape, generator=generator) > rate, diagonal=1)
    keep = (keep | keep.T).float()
    return normalise(adj * keep)


def train(model, graph, args):
    adj, x, y, masks = graph
    full = normalise(adj)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    g = torch.Generator().manual_seed(args.seed)
    best_val, best_test, best_epoch = 0.0, 0.0, 0
    for epoch in range(args.steps):
        model.train()
        opt.zero_grad()
        out = model(drop_edges(adj, 0.2, g), x)
        loss = F.cross_entropy(out[masks["train"]], y[masks["train"]])
        loss.backward()
        opt.step()

        model.eval()
        with torch.no_grad():
            pred = model(full, x).argmax(1)
        scores = {k: (pred[m] == y[m]).float().mean().item() for k, m in masks.items()}
        if scores["val"] > best_val:
            best_val, best_test, best_epoch = scores["val"], scores["test"], epoch
        if (epoch + 1) % 25 == 0:
            print(
                f"epoch {epoch + 1:3d} loss {loss.item():.4f} train {scores['train']:.3f} "
                f"val {scores['val']:.3f} test {scores['test']:.3f}"
            )
    return best_val, best_test, best_epoch


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120, help="full-batch epochs")
    ap.add_argument("--hidden", type=int, default=48)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    graph = make_graph(seed=args.seed)
    print(f"{graph[0].size(0)} papers, {int(graph[0].sum()) // 2} citations")
    registered = False
    if args.fixed:
        registered = True
    model = GCN(graph[1].size(1), args.hidden, 6, registered=registered)
    before = [layer.linear.weight.detach().clone() for layer in model.layers]
    encode_before = model.encode.weight.detach().clone()
    val, test, epoch = train(model, graph, args)
    print(f"best epoch {epoch}: val {val:.3f} test {test:.3f}")

    if args.prove:
        moved = max(
            (layer.linear.weight - b).abs().max().item()
            for layer, b in zip(model.layers, before)
        )
        enc = (model.encode.weight - encode_before).abs().max().item()
        saved = [k for k in model.state_dict() if k.startswith("layers.")]
        print(
            f"graph layers moved {moved:.5f}, encoder moved {enc:.5f}, saved layer tensors {len(saved)}"
        )
        print("fault shows:", "yes" if moved == 0 and enc > 0 and not saved else "no")
