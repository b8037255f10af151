"""Tells from the plan of a small pipe network whether its pressure holds: graph
classification with torch_geometric. Batches of graphs of all sizes, GINE layers that
see the pipes' widths, batch normalisation, dropout, two poolings side by side, and a
rate that falls when the validation does not get better.

    python pyg_pipework.py --steps 90
"""

import argparse

import torch
from torch import nn
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import BatchNorm, GINEConv, MLP
from torch_geometric.nn import global_add_pool, global_max_pool
from torch_geometric.utils import degree, to_undirected

KINDS, WIDTHS = 3, 2


def pipework(generator):
    """A random tree with a few loops; tanks feed what is next to them."""
    nodes = int(torch.randint(8, 22, (1,), generator=generator))
    above = [int(torch.randint(i, (1,), generator=generator)) for i in range(1, nodes)]
    tree = torch.tensor([above, range(1, nodes)])
    loops = torch.randint(nodes, (2, 3), generator=generator)
    edges = torch.cat([tree, loops[:, loops[0] != loops[1]]], 1)
    kind = torch.multinomial(
        torch.tensor([0.2, 0.5, 0.3]), nodes, replacement=True, generator=generator
    )
    width = torch.rand(edges.size(1), 1, generator=generator)
    attr = torch.cat([width, (width > 0.5).float()], 1)
    edges, attr = to_undirected(edges, attr, reduce="mean")
    tank, tap = (kind == 0).float(), (kind == 2).float()
    fed = torch.zeros(nodes).index_add(0, edges[1], tank[edges[0]] * attr[:, 0])
    balance = ((tap * (fed - 0.25)).sum() + 0.3 * tank.sum()).item()
    x = nn.functional.one_hot(kind, KINDS).float()
    x = torch.cat([x, degree(edges[0], nodes).unsqueeze(1) / 4], 1)
    return Data(x=x, edge_index=edges, edge_attr=attr, y=torch.tensor([balance > 0.2]))


class PipeNet(nn.Module):
    def __init__(self, hidden=48, layers=3, dropout=0.1):
        super().__init__()
        self.inside = nn.Linear(KINDS + 1, hidden)
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for _ in range(layers):
            mlp = MLP([hidden, hidden, hidden], norm=None)
            self.convs.append(GINEConv(mlp, train_eps=True, edge_dim=WIDTHS))
            self.norms.append(BatchNorm(hidden, momentum=0.2))
        self.dropout = nn.Dropout(dropout)
        self.head = MLP([2 * hidden, hidden, 1], dropout=dropout, norm=None)

    def forward(self, data):
        x = self.inside(data.x)
        for conv, norm in zip(self.convs, self.norms):
            x = x + self.dropout(norm(conv(x, data.edge_index, data.edge_attr)).relu())
        size = data.num_graphs
        pooled = [
            pool(x, data.batch, size) for pool in (global_add_pool, global_max_pool)
        ]
        pooled[0] = pooled[0] / 10
        return self.head(torch.cat(pooled, 1)).squeeze(1)


def train(model, loader, optimizer, left):
    model.train()
    total = seen = steps = 0
    for data in loader:
        if steps == left:
            break
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(
            model(data), data.y.float()
        )
        loss.backward()
        optimizer.step()
        total += loss.item() * data.num_graphs
        seen, steps = seen + data.num_graphs, steps + 1
    return total / seen, steps


@torch.no_grad()
def test(model, loader):
    model.eval()
    loss = right = 0
    for data in loader:
        score, y = model(data), data.y.float()
        loss += nn.functional.binary_cross_entropy_with_logits(
            score, y, reduction="sum"
        ).item()
        right += int(((score > 0) == data.y).sum())
    return loss / len(loader.dataset), right / len(loader.dataset)


def main(args):
    seed_everything(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    graphs = [pipework(generator) for _ in range(960)]
    train_loader = DataLoader(graphs[:640], args.batch_size, shuffle=True)
    val_loader, test_loader = DataLoader(graphs[640:800], 80), DataLoader(
        graphs[800:], 80
    )
    model = PipeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    step = 0
    while step < args.steps:
        loss, done = train(model, train_loader, optimizer, args.steps - step)
        step += done
        val_loss, val_accuracy = test(model, val_loader)
        plateau.step(val_loss)
        print(f"step {step} loss {loss:.4f} val {val_loss:.4f} acc {val_accuracy:.3f}")
    print("test loss {:.4f} acc {:.3f}".format(*test(model, test_loader)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=8)
    torch.set_num_threads(1)
    main(parser.parse_args())
