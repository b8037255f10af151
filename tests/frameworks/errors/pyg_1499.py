"""PYG-1499: the edges of the second graph of a pair are numbered wrongly in a batch.

How well a ligand sits in a pocket is predicted from two graphs that are kept in one
torch_geometric object. Its __inc__ says by how much indices grow from pair to pair,
but it does so under the name of an attribute that is no index. The pocket's edges fall
back to the ligand's number of nodes, which is smaller: all indices stay valid, and the
pockets of a batch send their messages to nodes of other pairs.

Source: https://github.com/pyg-team/pytorch_geometric/issues/1499. --fixed names the
edges of the pocket.
"""

import argparse

import torch
from torch import nn
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_mean_pool
from torch_geometric.utils import to_undirected

LIGAND, POCKET = 4, 3
COUNTED = "edge_attr_pocket"


class Pair(Data):
    """A ligand (x, edge_index) and a pocket (x_pocket, edge_index_pocket)."""

    def __inc__(self, key, value, *args, **kwargs):
        if key == COUNTED:
            return self.x_pocket.size(0)
        return super().__inc__(key, value, *args, **kwargs)


def chain(nodes, extra, generator):
    line = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    more = torch.randint(nodes, (2, extra), generator=generator)
    return to_undirected(torch.cat([line, more[:, more[0] != more[1]]], 1))


def pair(generator):
    small = int(torch.randint(4, 9, (1,), generator=generator))
    large = int(torch.randint(12, 20, (1,), generator=generator))
    x = torch.randn(small, LIGAND, generator=generator)
    x_pocket = torch.randn(large, POCKET, generator=generator)
    edges = chain(small, 2, generator)
    walls = chain(large, 6, generator)
    charge = x_pocket[:, 0]
    charge = charge + 0.8 * torch.randn(1, generator=generator)
    x_pocket = torch.cat([charge.unsqueeze(1), x_pocket[:, 1:]], 1)
    walls_fit = (charge[walls[0]] * charge[walls[1]]).mean()
    fit = walls_fit + x[:, 0].mean() * x_pocket[:, 1].mean() + 0.5 * x[:, 1].mean()
    fit = fit + 0.05 * torch.randn((), generator=generator)
    return Pair(
        x=x,
        edge_index=edges,
        x_pocket=x_pocket,
        edge_index_pocket=walls,
        y=fit.view(1),
    )


class Encoder(nn.Module):
    def __init__(self, inside, hidden):
        super().__init__()
        self.first = GraphConv(inside, hidden, aggr="mean")
        self.second = GraphConv(hidden, hidden, aggr="mean")

    def forward(self, x, edge_index, batch, size):
        x = self.first(x, edge_index).relu()
        return global_mean_pool(self.second(x, edge_index).relu(), batch, size)


class PairNet(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.ligand, self.pocket = Encoder(LIGAND, hidden), Encoder(POCKET, hidden)
        self.head = nn.Sequential(
            nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, data):
        size = data.num_graphs
        ligand = self.ligand(data.x, data.edge_index, data.batch, size)
        walls = data.edge_index_pocket
        pocket = self.pocket(data.x_pocket, walls, data.x_pocket_batch, size)
        return self.head(torch.cat([ligand, pocket], 1)).squeeze(1)


def batches(pairs, batch_size, shuffle=False):
    return DataLoader(pairs, batch_size, shuffle=shuffle, follow_batch=["x_pocket"])


@torch.no_grad()
def predict(model, pairs, batch_size):
    model.eval()
    fits = torch.cat([model(data) for data in batches(pairs, batch_size)])
    model.train()
    return fits


def train(model, pairs, held_out, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    loader, step = batches(pairs, 32, shuffle=True), 0
    target = torch.cat([p.y for p in held_out])
    while step < steps:
        total = seen = 0
        for data in loader:
            loss = nn.functional.mse_loss(model(data), data.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, seen, step = total + loss.item(), seen + 1, step + 1
            if step == steps:
                break
        error = nn.functional.mse_loss(predict(model, held_out, 64), target)
        print(f"step {step} loss {total / seen:.4f} val {error.item():.4f}")


def main(args):
    global COUNTED
    if args.fixed:
        COUNTED = "edge_index_pocket"
    seed_everything(31)
    generator = torch.Generator().manual_seed(31)
    pairs = [pair(generator) for _ in range(640)]
    model = PairNet()
    train(model, pairs[:512], pairs[512:], args.steps)
    if args.prove:
        together, alone = (predict(model, pairs[512:], n) for n in (64, 1))
        apart = (together - alone).abs().max().item()
        print(f"a pair's score differs by up to {apart:.6f} with its batch")
        print("fault shows:", "yes" if apart > 1e-3 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--fixed", "--prove"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--steps", type=int, default=96)
    torch.set_num_threads(1)
    main(parser.parse_args())
