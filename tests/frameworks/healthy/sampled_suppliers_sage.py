"""Branches of firms from who supplies whom: GraphSAGE on sampled neighbours.

Each batch is a few hundred seeds with at most six and then four of their neighbours,
drawn by hand, as a torch_geometric Data object; only the seeds, which come first, count
in the loss. Evaluation uses the whole graph at once. Metrics by torchmetrics.

    python sampled_suppliers_sage.py --epochs 8
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, SAGEConv
from torch_geometric.utils import coalesce, dropout_edge, remove_self_loops
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

BRANCHES, FEATURES, UNKNOWN = 6, 16, -1


def economy(firms, generator):
    """Firms supply their own branch and the next one in the chain."""
    weights = torch.tensor([4.0, 3.0, 3.0, 2.0, 1.0, 1.0])
    branch = torch.multinomial(weights, firms, True, generator=generator)
    source = torch.randint(firms, (firms * 60,), generator=generator)
    target = torch.randint(firms, (firms * 60,), generator=generator)
    step = (branch[target] - branch[source]) % BRANCHES
    chance = torch.tensor([0.06, 0.18, 0.02, 0.02, 0.02, 0.02])[step]
    kept = torch.rand(len(chance), generator=generator) < chance
    edges = torch.stack([source[kept], target[kept]])
    edges = coalesce(remove_self_loops(torch.cat([edges, edges.flip(0)], 1))[0])
    centres = torch.randn(BRANCHES, FEATURES, generator=generator)
    noise = torch.randn(firms, FEATURES, generator=generator)
    label = branch.clone()
    hidden = torch.rand(firms, generator=generator) < 0.05
    label[hidden] = UNKNOWN  # a branch is not on record for everyone
    return Data(x=0.35 * centres[branch] + noise, edge_index=edges, y=label)


class NeighbourSampler:
    """Collate function: seeds to a subgraph, edges pointing at who gathers."""

    def __init__(self, graph, fanout):
        self.graph, self.fanout = graph, fanout
        source, target = graph.edge_index
        order = target.argsort(stable=True)
        self.source = source[order]
        degree = torch.bincount(target, minlength=graph.num_nodes)
        self.start = torch.cat([torch.zeros(1, dtype=torch.long), degree.cumsum(0)])

    def __call__(self, seeds):
        seeds = torch.as_tensor(seeds)
        nodes = seeds.tolist()
        place = {node: i for i, node in enumerate(nodes)}
        frontier, sources, targets = nodes[:], [], []
        for most in self.fanout:
            following = []
            for node in frontier:
                near = self.source[self.start[node] : self.start[node + 1]]
                if len(near) > most:
                    near = near[torch.randperm(len(near))[:most]]
                for other in near.tolist():
                    if other not in place:
                        place[other] = len(nodes)
                        nodes.append(other)
                        following.append(other)
                    sources.append(place[other])
                    targets.append(place[node])
            frontier = following
        index = torch.tensor(nodes)
        return Data(
            x=self.graph.x[index],
            edge_index=torch.tensor([sources, targets]).view(2, -1),
            y=self.graph.y[seeds],
            seeds=len(seeds),
        )


class Sage(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.first = SAGEConv(FEATURES, width, normalize=True)
        self.norm = BatchNorm(width)
        self.second = SAGEConv(width, width, aggr="max")
        self.out = nn.Linear(FEATURES + 2 * width, BRANCHES)

    def forward(self, x, edges):
        if self.training:
            edges, _ = dropout_edge(edges, 0.1)
        first = F.relu(self.norm(self.first(x, edges)))
        second = F.relu(self.second(first, edges))
        jumping = torch.cat([x, first, second], 1)
        return self.out(F.dropout(jumping, 0.3, self.training))


@torch.no_grad()
def test(net, graph, rows, metrics):
    net.eval()
    logits = net(graph.x, graph.edge_index)[rows]
    known = graph.y[rows] != UNKNOWN
    loss = F.cross_entropy(logits, graph.y[rows], ignore_index=UNKNOWN)
    values = metrics(logits[known], graph.y[rows][known])
    metrics.reset()
    net.train()
    return loss.item(), {name: value.item() for name, value in values.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    graph = economy(2400, generator)
    order = torch.randperm(graph.num_nodes, generator=generator)
    train, held = order[:900], order[900:1500]  # labels of the rest are never used
    sampler = NeighbourSampler(graph, (6, 4))
    loader = DataLoader(train.tolist(), 128, shuffle=True, collate_fn=sampler)
    net = Sage()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=5e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, args.epochs * len(loader), eta_min=1e-4
    )
    running = MulticlassAccuracy(BRANCHES, average="micro", ignore_index=UNKNOWN)
    metrics = MetricCollection(
        {
            "accuracy": MulticlassAccuracy(BRANCHES, average="micro"),
            "f1": MulticlassF1Score(BRANCHES, average="macro"),
        }
    )
    step = 0
    for epoch in range(args.epochs):
        for batch in loader:
            logits = net(batch.x, batch.edge_index)[: batch.seeds]
            loss = F.cross_entropy(logits, batch.y, ignore_index=UNKNOWN)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            running.update(logits.detach(), batch.y)
            print(
                f"step {step} loss {loss.item():.4f} nodes {batch.num_nodes}",
                flush=True,
            )
            step += 1
        loss, values = test(net, graph, held, metrics)
        print(
            f"epoch {epoch} train {running.compute():.3f} held {loss:.4f} "
            f"accuracy {values['accuracy']:.3f} f1 {values['f1']:.3f}",
            flush=True,
        )
        running.reset()


if __name__ == "__main__":
    main()
