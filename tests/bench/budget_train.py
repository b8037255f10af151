"""A training whose recording in full takes several times its step: a large
table of which a step touches a few rows, and a deep net of small layers.

    python budget_train.py --steps 200 --skip 100 --out FILE

Writes mean seconds of a step after the first --skip and, where the agent is
there, its own share of them in percent by its own clock.
"""

import argparse
import json
import sys
import time

import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, items, size, depth):
        super().__init__()
        self.table = nn.Embedding(items, size, sparse=True)
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(depth))
        self.head = nn.Linear(size, 1)

    def forward(self, items):
        x = self.table(items).mean(1)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)


def own_clock():
    """(the agent's ticks, all ticks), or None without it."""
    hooks = sys.modules.get("_traincheck.user")
    return hooks._watch.core.times() if hooks else None


def main(options):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Recommender(items=1_000_000, size=64, depth=16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    items = torch.randint(1_000_000, (16, 512, 20))
    wanted = torch.rand(16, 512, 1)
    for step in range(options.steps):
        if step == options.skip:
            begin, clock = time.perf_counter(), own_clock()
        optimizer.zero_grad()
        batch = step % len(items)
        nn.functional.mse_loss(model(items[batch]), wanted[batch]).backward()
        optimizer.step()
    result = {"step_s": (time.perf_counter() - begin) / (options.steps - options.skip)}
    if clock is not None:
        own, ticks = (b - a for a, b in zip(clock, own_clock()))
        result["own_percent"] = 100 * own / (ticks - own)
    with open(options.out, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--skip", type=int, default=600)
    parser.add_argument("--out", required=True)
    main(parser.parse_args())
