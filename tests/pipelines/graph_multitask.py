"""Three properties of random graphs at once with a graph network; the losses are
weighed by learnt uncertainties. A baseline is evaluated first of all, with
model.eval(), before there is any optimizer.

    python graph_multitask.py --steps 120
"""

import argparse

import torch
from torch import nn

PROPERTIES = ["edges", "triangles", "colour balance"]


def random_graphs(count, generator):
    """Dense adjacency (no self-loops), colours of nodes, and which nodes exist."""
    largest = 14
    sizes = torch.randint(7, largest + 1, (count, 1), generator=generator)
    exists = torch.arange(largest) < sizes
    density = 0.15 + 0.4 * torch.rand(count, 1, 1, generator=generator)
    upper = torch.rand(count, largest, largest, generator=generator) < density
    upper = torch.triu(upper, diagonal=1) & exists[:, None] & exists[:, :, None]
    adjacency = (upper | upper.transpose(1, 2)).float()
    colour = torch.randint(0, 3, (count, largest), generator=generator)
    return adjacency, colour, exists


def properties(adjacency, colour, exists):
    edges = adjacency.sum((1, 2)) / 2
    cubed = adjacency @ adjacency @ adjacency
    triangles = cubed.diagonal(dim1=1, dim2=2).sum(1) / 6
    same = (colour[:, :, None] == colour[:, None]).float()
    balance = (adjacency * same).sum((1, 2)) / adjacency.sum((1, 2)).clamp(min=1)
    target = torch.stack([edges / 10 - 2, torch.log1p(triangles) - 1.5, balance], 1)
    target[:, 2] = 5 * (target[:, 2] - 0.33)
    return target


class MessagePassing(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Linear(dim, dim, bias=False)
        self.update = nn.GRUCell(dim, dim)

    def forward(self, h, adjacency):
        heard = adjacency @ self.message(h)
        b, n, d = h.shape
        return self.update(heard.view(b * n, d), h.reshape(b * n, d)).view(b, n, d)


class GraphNet(nn.Module):
    def __init__(self, dim=24, rounds=3):
        super().__init__()
        self.colour = nn.Embedding(3, dim)
        self.degree = nn.Linear(1, dim)
        self.rounds = nn.ModuleList([MessagePassing(dim) for _ in range(rounds)])
        self.dropout = nn.Dropout(0.05)
        self.heads = nn.ModuleDict(
            {
                name.replace(" ", "_"): nn.Sequential(
                    nn.Linear(2 * dim, dim), nn.LeakyReLU(), nn.Linear(dim, 1)
                )
                for name in PROPERTIES
            }
        )

    def forward(self, adjacency, colour, exists):
        degree = adjacency.sum(2, keepdim=True)
        h = torch.tanh(self.colour(colour) + self.degree(degree / 4))
        for layer in self.rounds:
            h = layer(h, adjacency)
        h = h * exists.unsqueeze(2)
        mean = h.sum(1) / exists.sum(1, keepdim=True)
        pooled = self.dropout(torch.cat([mean, h.sum(1) / 10], dim=1))
        return torch.cat([head(pooled) for head in self.heads.values()], dim=1)


class UncertaintyWeights(nn.Module):
    """Kendall et al.: exp(-s) * loss + s, with one s per task."""

    def __init__(self, tasks):
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(tasks))

    def forward(self, losses):
        return (torch.exp(-self.log_variance) * losses + self.log_variance).sum()


@torch.no_grad()
def mean_squares(model, graphs):
    model.eval()
    return (model(*graphs) - properties(*graphs)).square().mean(0)


def show(head, values):
    print(head, *(f"{name} {v:.4f}" for name, v in zip(PROPERTIES, values.tolist())))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(50)
    generator = torch.Generator().manual_seed(51)

    model = GraphNet()
    model.eval()
    held_out = random_graphs(200, generator)
    show("untrained:", mean_squares(model, held_out))

    weigh = UncertaintyWeights(len(PROPERTIES))
    optimizer = torch.optim.RMSprop(
        [
            {"params": model.parameters()},
            {"params": weigh.parameters(), "lr": 3 * args.lr},
        ],
        lr=args.lr,
        alpha=0.95,
    )
    for step in range(args.steps):
        model.train()
        graphs = random_graphs(args.batch_size, generator)
        losses = (model(*graphs) - properties(*graphs)).square().mean(0)
        total = weigh(losses)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        if step % 12 == 0:
            plain = losses.sum().item()
            print(
                f"step {step} loss {plain:.6f} weighed {total.item():.6f}", flush=True
            )
    show("trained:", mean_squares(model, held_out))
    show("weights:", torch.exp(-weigh.log_variance.detach()))


if __name__ == "__main__":
    main()
