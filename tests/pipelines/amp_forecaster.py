"""Forecasts series with convolutions in mixed precision (bfloat16).

    python amp_forecaster.py --steps 16
"""

import argparse

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down = nn.Conv1d(1, channels, 5, stride=2, padding=2)
        self.mix = nn.Conv1d(channels, channels, 3, padding=1)
        self.read = nn.Linear(channels, 1)

    def forward(self, series):
        x = torch.relu(self.down(series[:, None]))
        x = x + torch.relu(self.mix(x))
        return self.read(x.mean(dim=2)).squeeze(1)


def walks(count, length, generator):
    steps = torch.randn(count, length + 1, generator=generator)
    series = steps.cumsum(dim=1) / length**0.5
    return series[:, :-1], series[:, -1]


def train(options):
    torch.manual_seed(options.seed)
    model = Forecaster(options.channels)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(options.seed)
    for step in range(options.steps):
        series, target = walks(options.batch_size, 32, generator)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            predicted = model(series)
        # The loss in full precision.
        loss = nn.functional.huber_loss(predicted.float(), target)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item().hex()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--channels", type=int, default=12)
    parser.add_argument("--seed", type=int, default=19)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train(options)


if __name__ == "__main__":
    main()
