"""Linear autoencoder of the make-up of alloys, with one matrix for both directions:
no bias, no activation, no normalisation, the whole table in each step. Its subspace is
compared with the principal components at the end; the loss cannot fall below what
these leave over.

    python linear_autoencoder_alloys.py --steps 100
"""

import argparse

import torch
from torch import nn

ELEMENTS, KEPT = 24, 4


class TiedLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(KEPT, ELEMENTS))
        nn.init.orthogonal_(self.weight)

    def encode(self, rows):
        return rows @ self.weight.T

    def forward(self, rows):
        return self.encode(rows) @ self.weight


def alloys(count, rng):
    """A few recipes mixed, in shares, and measured with an error."""
    recipes = torch.rand(KEPT + 2, ELEMENTS, generator=rng) ** 3
    shares = torch.rand(count, KEPT + 2, generator=rng) ** 2
    shares = shares * torch.tensor([3.0, 2.5, 2.0, 1.6, 0.4, 0.3])
    return shares @ recipes + 0.05 * torch.randn(count, ELEMENTS, generator=rng)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rows = alloys(900, torch.Generator().manual_seed(args.seed))
    rows, held = rows[:700], rows[700:]
    mean = rows.mean(0)
    rows, held = rows - mean, held - mean
    model = TiedLinear()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for step in range(args.steps):
        loss = (model(rows) - rows).square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}", flush=True)

    with torch.no_grad():
        left = (model(held) - held).square().sum(1).mean().item()
        values, vectors = torch.linalg.svd(rows, full_matrices=False)[1:]
        least = values[KEPT:].square().sum().item() / len(rows)
        basis = torch.linalg.qr(model.weight.T)[0]
        cosines = torch.linalg.svdvals(basis.T @ vectors[:KEPT].T)
    print(f"left over {loss.item():.6f}, at least {least:.6f}, held out {left:.6f}")
    print("cosines of the subspaces", [round(c, 4) for c in cosines.tolist()])


if __name__ == "__main__":
    main()
