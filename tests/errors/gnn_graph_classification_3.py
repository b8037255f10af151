"""Graph classification with a small GCN (made-up molecules instead of PROTEINS).

    python gnn_graph_classification_3.py --n_agg_layer 2 --agg_hidden 32
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--n_agg_layer", type=int, default=2)
    parser.add_argument("--agg_hidden", type=int, default=32)
    parser.add_argument("--fc_hidden", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--readout", default="avg", choices=["avg", "sum", "max"])
    parser.add_argument("--batch_size", type=int, default=32)
    return parser.parse_args()


class GraphConvolutionLayer(nn.Module):
    """D^-1/2 (A + I) D^-1/2 X W"""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        adj = adj + torch.eye(adj.shape[-1])
        d = adj.sum(-1).clamp(min=1).rsqrt()
        norm = d[:, :, None] * adj * d[:, None, :]
        return norm @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(
        self, n_feat, n_class, n_layer, agg_hidden, fc_hidden, dropout, readout, args
    ):
        super().__init__()
        self.n_layer, self.dropout, self.readout = n_layer, dropout, readout
        # Graph convolution layers
        layers = []
        for i in range(n_layer):
            layers.append(
                GraphConvolutionLayer(n_feat if i == 0 else agg_hidden, agg_hidden)
            )
        self.graph_convolution_layers = layers
        if args.fixed:
            self.graph_convolution_layers = nn.ModuleList(layers)
        # Fully connected layers
        self.fc1 = nn.Linear(agg_hidden, fc_hidden)
        self.fc2 = nn.Linear(fc_hidden, n_class)

    def forward(self, x, adj, mask):
        for layer in self.graph_convolution_layers:
            x = F.relu(layer(x, adj))
            x = F.dropout(x, p=self.dropout, training=self.training)
        x = x * mask[:, :, None]
        if self.readout == "avg":
            x = x.sum(1) / mask.sum(1, keepdim=True)
        elif self.readout == "sum":
            x = x.sum(1)
        else:
            x = x.max(1)[0]
        x = F.relu(self.fc1(x))
        x = F.dropout(x, p=self.dropout, training=self.training)
        return self.fc2(x)


def make_graphs(n, rng, n_max=20, n_types=6):
    """Two families: atoms linked to their own type, or to the next type."""
    xs = np.zeros((n, n_max, n_types), dtype=np.float32)
    adjs = np.zeros((n, n_max, n_max), dtype=np.float32)
    masks = np.zeros((n, n_max), dtype=np.float32)
    ys = rng.integers(0, 2, size=n)
    for g in range(n):
        size = rng.integers(10, n_max + 1)
        kind = rng.integers(0, n_types, size=size)
        xs[g, np.arange(size), kind] = 1
        masks[g, :size] = 1
        for i in range(size):
            for j in range(i + 1, size):
                same = (
                    kind[i] == kind[j]
                    if ys[g] == 0
                    else (kind[i] - kind[j]) % n_types in (1, 5)
                )
                if rng.random() < (0.5 if same else 0.08):
                    adjs[g, i, j] = adjs[g, j, i] = 1
    return tuple(torch.from_numpy(v) for v in (xs, adjs, masks, ys))


def accuracy(model, data):
    model.eval()
    with torch.no_grad():
        out = model(*data[:3]).argmax(1)
    model.train()
    return (out == data[3]).float().mean().item()


def main():
    args = parse()
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    train, test = make_graphs(500, rng), make_graphs(150, rng)

    model = GCN(
        6,
        2,
        args.n_agg_layer,
        args.agg_hidden,
        args.fc_hidden,
        args.dropout,
        args.readout,
        args,
    )
    print(
        "Total parameters:",
        sum(p.numel() for p in model.parameters() if p.requires_grad),
    )
    first = [l.weight.detach().clone() for l in model.graph_convolution_layers]
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, milestones=[100, 160], gamma=0.5
    )

    losses = []
    for step in range(args.steps):
        idx = torch.from_numpy(
            rng.choice(len(train[3]), args.batch_size, replace=False)
        )
        x, adj, mask, y = (v[idx] for v in train)
        loss = F.cross_entropy(model(x, adj, mask), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if (step + 1) % 40 == 0:
            print(
                "step %d  loss %.4f  test accuracy %.3f"
                % (step + 1, np.mean(losses[-40:]), accuracy(model, test))
            )

    if args.prove:
        change = [
            (l.weight - w).abs().max().item()
            for l, w in zip(model.graph_convolution_layers, first)
        ]
        print("largest change per graph layer:", ["%.4f" % c for c in change])
        print("fault shows:", "yes" if max(change) == 0 else "no")


if __name__ == "__main__":
    main()
