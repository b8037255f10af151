"""COGDL-18: the other direction of a held-out edge stays in the training graph.

Source: https://github.com/THUDM/cogdl/issues/18 (also dmlc/dgl#5536). The edge list of
an undirected graph has each edge twice, as (u, v) and (v, u), and the split draws rows
of that list: most held-out edges are trained and passed messages along, turned round.
--fixed takes one row for each edge before it splits.
"""

import argparse

import torch
from torch import nn

NODES, FEATURES, GROUPS = 90, 12, 5


def interactions(seed=8):
    """Groups of proteins that mostly bind among themselves, as rows of two."""
    g = torch.Generator().manual_seed(seed)
    group = torch.randint(GROUPS, (NODES,), generator=g)
    same = group[:, None] == group[None, :]
    chance = torch.where(same, 0.22, 0.02)
    upper = torch.triu(torch.rand(NODES, NODES, generator=g) < chance, diagonal=1)
    x = torch.randn(NODES, FEATURES, generator=g)
    x[:, :GROUPS] += 0.8 * nn.functional.one_hot(group, GROUPS)
    return (upper | upper.T).nonzero(), x


def divide_data(rows, once, share=0.2):
    if once:
        rows = rows[rows[:, 0] < rows[:, 1]]
    g = torch.Generator().manual_seed(0)
    rows = rows[torch.randperm(len(rows), generator=g)]
    count = int(share * len(rows))
    return rows[count:], rows[:count]


def normalised_adjacency(rows):
    a = torch.eye(NODES)
    a[rows[:, 0], rows[:, 1]] = 1.0
    a[rows[:, 1], rows[:, 0]] = 1.0
    scale = a.sum(1).rsqrt()
    return scale[:, None] * a * scale[None, :]


class GCNEncoder(nn.Module):
    def __init__(self, hidden=24, out=12):
        super().__init__()
        self.first = nn.Linear(FEATURES, hidden)
        self.second = nn.Linear(hidden, out)

    def forward(self, adjacency, x):
        hidden = torch.relu(adjacency @ self.first(x))
        return adjacency @ self.second(hidden)


def score(z, rows):
    return (z[rows[:, 0]] * z[rows[:, 1]]).sum(1)


def not_edges(count, known, generator):
    """Pairs that are in none of the sets."""
    candidates = torch.randint(NODES, (6 * count, 2), generator=generator)
    free = [pair for pair in candidates.tolist() if tuple(sorted(pair)) not in known]
    return torch.tensor([pair for pair in free if pair[0] != pair[1]][:count])


def auc(positive, negative):
    return (positive[:, None] > negative[None, :]).float().mean().item()


def unordered(rows):
    return {tuple(sorted(row)) for row in rows.tolist()}


def main():
    p = argparse.ArgumentParser(description="link prediction with a graph autoencoder")
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    p.add_argument("--steps", type=int, default=20)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)

    rows, x = interactions()
    train, test = divide_data(rows, once=args.fixed)
    known = unordered(rows)
    draw = torch.Generator().manual_seed(4)
    test_negative = not_edges(len(test), known, draw)
    adjacency = normalised_adjacency(train)

    encoder = GCNEncoder()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.02)
    for epoch in range(args.steps):
        z = encoder(adjacency, x)
        negative = not_edges(len(train), known, draw)
        logits = torch.cat([score(z, train), score(z, negative)])
        labels = torch.zeros(len(logits))
        labels[: len(train)] = 1.0
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        if (epoch + 1) % 5 == 0:
            encoder.eval()
            with torch.no_grad():
                z = encoder(adjacency, x)
                result = auc(score(z, test), score(z, test_negative))
            encoder.train()
            print(f"test AUC {result:.4f}", flush=True)
    if args.prove:
        leaked = unordered(train) & unordered(test)
        print("fault shows:", "yes" if leaked else "no")


if __name__ == "__main__":
    main()
