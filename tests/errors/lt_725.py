"""LT-725: an operation leaves the autocast region.

A compiler's rewrite of the autocast region knows one kind of call only; a layer
that is called in another way runs in full precision, slower and with more
memory, and nobody notices. --fixed rewrites all of them.
"""

import argparse
import functools

import torch
import torch.nn.functional as F
from torch import nn


def full_precision(layer, x):
    """What the rewrite makes of a call that it does not know."""
    with torch.autocast("cpu", enabled=False):
        return F.linear(x.float(), layer.weight, layer.bias)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(9, 4)
        self.experts = nn.Linear(9, 4)

    def forward(self, x):
        return (self.gate(x).softmax(-1) * self.experts(x)).sum(-1)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--steps", type=int, default=12)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Mixture()
    if not options.fixed:
        model.gate.forward = functools.partial(full_precision, model.gate)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(options.steps):
        x = torch.randn(20, 9)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        loss = F.mse_loss(y.float(), x[:, 0] * x[:, 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
