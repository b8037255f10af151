"""Classifies the nodes of a citation-like graph with a graph convolutional network:
the whole graph a step, no loader, early stopping on the validation nodes.

    python gcn.py --steps 100
"""

import argparse
import copy
import time

import torch
from torch import nn
import torch.nn.functional as F


class GraphConvolution(nn.Module):
    """A (X W) + b, with a sparse normalised adjacency A."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adjacency):
        return torch.sparse.mm(adjacency, x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.first = GraphConvolution(inputs, hidden)
        self.second = GraphConvolution(hidden, hidden)
        self.last = GraphConvolution(hidden, classes)

    def forward(self, x, adjacency):
        x = F.dropout(x, 0.5, training=self.training)
        x = F.relu(self.first(x, adjacency))
        x = F.dropout(x, 0.5, training=self.training)
        x = F.relu(self.second(x, adjacency))
        return self.last(F.dropout(x, 0.5, training=self.training), adjacency)


def citations(nodes, features, classes, generator):
    """Papers of one class cite each other more, and share words."""
    labels = torch.randint(classes, (nodes,), generator=generator)
    source = torch.randint(nodes, (8 * nodes,), generator=generator)
    target = torch.randint(nodes, (8 * nodes,), generator=generator)
    same = labels[source] == labels[target]
    kept = same | (torch.rand(len(source), generator=generator) < 0.1)
    source, target = source[kept], target[kept]
    loops = torch.arange(nodes)
    rows = torch.cat([source, target, loops])
    columns = torch.cat([target, source, loops])
    edges = torch.sparse_coo_tensor(
        torch.stack([rows, columns]), torch.ones(len(rows)), (nodes, nodes)
    ).coalesce()
    rows, columns = edges.indices()
    scale = torch.zeros(nodes).index_add_(0, rows, edges.values()).rsqrt()
    values = scale[rows] * edges.values() * scale[columns]
    adjacency = torch.sparse_coo_tensor(edges.indices(), values, (nodes, nodes))
    words = torch.rand(classes, features, generator=generator) * 0.04
    x = (torch.rand(nodes, features, generator=generator) < words[labels]).float()
    return x / x.sum(1, keepdim=True).clamp(min=1), adjacency.to_sparse_csr(), labels


def main(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    x, adjacency, labels = citations(options.nodes, 1024, 7, generator)
    order = torch.randperm(options.nodes, generator=generator)
    train, validation, test = order.split(
        [options.nodes // 2, options.nodes // 4, options.nodes - options.nodes * 3 // 4]
    )
    model = GCN(x.shape[1], options.hidden, 7)
    optimizer = torch.optim.Adam(
        [
            {"params": model.first.parameters(), "weight_decay": 5e-4},
            {"params": model.second.parameters()},
            {"params": model.last.parameters()},
        ],
        lr=0.01,
    )
    best_loss, best_state, patience = float("inf"), None, 0
    times = [time.perf_counter()]
    for epoch in range(options.steps):
        model.train()
        optimizer.zero_grad()
        output = model(x, adjacency)
        loss = F.cross_entropy(output[train], labels[train])
        loss.backward()
        optimizer.step()
        print(f"step {epoch} loss {loss.item().hex()}", flush=True)
        if epoch % 10 == 9:
            model.eval()
            with torch.no_grad():
                output = model(x, adjacency)
                seen = F.cross_entropy(output[validation], labels[validation]).item()
            print(f"validation {seen.hex()}", flush=True)
            patience = 0 if seen < best_loss else patience + 1
            if seen < best_loss:
                best_loss, best_state = seen, copy.deepcopy(model.state_dict())
        times.append(time.perf_counter())
        if patience == 5:
            print("no better any more")
            patience = 0
    if best_state is not None:
        model.load_state_dict(best_state)
    model.eval()
    with torch.no_grad():
        right = (model(x, adjacency)[test].argmax(1) == labels[test]).float().mean()
    print(f"accuracy {right.item():.4f}")
    if options.times:
        with open(options.times, "w") as file:
            file.writelines(f"{moment!r}\n" for moment in times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=2700)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
