"""A training of small tensors, which the agent watches: see own_time.py.

Writes what the agent took of each step and of calls of a module without parameters,
in microseconds by the agent's own clock.
"""

import argparse
import sys
import time

import torch
from torch import nn


class Blocks(nn.Module):
    """`count` weights and biases in a row: 2 * count parameters."""

    def __init__(self, count, size):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(size, size) for _ in range(count))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class OwnClock:
    """Microseconds of the agent's own time so far."""

    def __init__(self):
        self.core = sys.modules["_traincheck.user"]._watch.core
        begin, (_, ticks) = time.perf_counter(), self.core.times()
        time.sleep(0.1)
        passed = time.perf_counter() - begin
        self.ticks_a_us = (self.core.times()[1] - ticks) / passed / 1e6

    def __call__(self):
        return self.core.times()[0] / self.ticks_a_us


def main(options):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, relu = Blocks(options.parameters // 2, options.size), nn.ReLU()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(4, options.size), torch.randn(4, options.size)
    own, rows = OwnClock(), []
    for _ in range(options.steps):
        begin = own()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        middle = own()
        with torch.no_grad():
            for _ in range(10):
                relu(x)
        rows.append((middle - begin, (own() - middle) / 10))
    with open(options.out, "w") as file:
        for row in rows:
            file.write("%r %r\n" % row)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--parameters", type=int, default=100)
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument("--out", required=True)
    main(parser.parse_args())
