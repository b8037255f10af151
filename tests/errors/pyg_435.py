"""Sorts stations of a tram network into districts by graph convolutions.

After PyTorch Geometric, issue 435.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

STATIONS, DISTRICTS = 600, 6


def network(seed):
    """Stations, each line's pair of stations once, and the districts."""
    generator = torch.Generator().manual_seed(seed)
    district = torch.randint(DISTRICTS, (STATIONS,), generator=generator)
    same = district[:, None] == district[None]
    chance = torch.where(same, 0.03, 0.002).triu(1)
    lines = torch.rand(STATIONS, STATIONS, generator=generator) < chance
    centre = torch.randn(DISTRICTS, 16, generator=generator)
    noise = torch.randn(STATIONS, 16, generator=generator)
    return 0.5 * centre[district] + noise, lines.nonzero().T, district


def prepare(lines, fixed):
    """The edges [2, edges] with loops, and their weights."""
    edges = torch.cat([lines, lines.flip(0)], 1) if fixed else lines
    loops = torch.arange(STATIONS).repeat(2, 1)
    edges = torch.cat([edges, loops], 1)
    degree = torch.bincount(edges[1], minlength=STATIONS).float()
    scale = degree.rsqrt()
    return edges, scale[edges[0]] * scale[edges[1]]


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, edges, weight):
        sent = self.linear(x)[edges[0]] * weight[:, None]
        out = sent.new_zeros(len(x), sent.shape[1]).index_add(0, edges[1], sent)
        return out + self.bias


class DistrictNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first, self.second = GraphConv(16, width), GraphConv(width, DISTRICTS)
        self.dropout = nn.Dropout(0.4)

    def forward(self, x, edges, weight):
        hidden = F.relu(self.first(self.dropout(x), edges, weight))
        return self.second(self.dropout(hidden), edges, weight)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    x, lines, district = network(args.seed)
    edges, weight = prepare(lines, args.fixed)
    order = torch.randperm(STATIONS)
    train, valid = order[:120], order[120:300]
    model = DistrictNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    for step in range(args.steps):
        model.train()
        loss = F.cross_entropy(model(x, edges, weight)[train], district[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 20 == 19:
            model.eval()
            with torch.no_grad():
                guess = model(x, edges, weight).argmax(1)
            right = (guess == district)[valid].float().mean().item()
            print(f"step {step} validation {right:.4f}", flush=True)
    if args.prove:
        links = torch.zeros(STATIONS, STATIONS, dtype=torch.bool)
        links[edges[0], edges[1]] = True
        single = (links & ~links.T).sum().item()
        print(f"{single} of {lines.shape[1]} lines carry messages one way only")
        print("fault shows:", "yes" if single else "no", flush=True)


if __name__ == "__main__":
    main()
