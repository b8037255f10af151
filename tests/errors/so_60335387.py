"""SO-60335387: gradients are never cleared.

The loop calls backward and step, and nobody calls zero_grad: every step uses
the sum of all gradients so far. --fixed clears them.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(4)
        )
        self.linear = nn.Linear(6 * 7 * 7, 10)

    def forward(self, images):
        return self.linear(self.features(images).flatten(1))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--steps", type=int, default=12)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Digits()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(options.steps):
        labels = torch.randint(10, (16,))
        images = torch.randn(16, 1, 28, 28) + labels[:, None, None, None] / 10
        if options.fixed:
            optimizer.zero_grad()
        loss = F.nll_loss(F.log_softmax(net(images), dim=1), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
