"""TF-33844: attention drops out in evaluation as well.

The fused attention gets the module's dropout rate whatever its mode is, so
that every validation is noisy and too pessimistic. --fixed passes 0 unless it
trains.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class FusedAttention(nn.Module):
    def __init__(self, width, rate, fixed):
        super().__init__()
        self.projections = nn.ModuleDict(
            {name: nn.Linear(width, width) for name in ("q", "k", "v", "o")}
        )
        self.rate = rate
        self.fixed = fixed

    def forward(self, x):
        q, k, v = (self.projections[name](x)[:, None] for name in ("q", "k", "v"))
        rate = 0.0 if self.fixed and not self.training else self.rate
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=rate)
        return self.projections["o"](mixed[:, 0])


class Regressor(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.inputs = nn.Linear(3, 16)
        self.attention = FusedAttention(16, 0.3, fixed)
        self.output = nn.Linear(16, 1)

    def forward(self, series):
        x = torch.tanh(self.inputs(series))
        return self.output(x + self.attention(x))[:, -1]


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--steps", type=int, default=12)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Regressor(options.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    held_out = torch.randn(32, 6, 3)
    for step in range(options.steps):
        model.train()
        series = torch.randn(16, 6, 3)
        loss = F.mse_loss(model(series), series.sum(dim=(1, 2))[:, None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 3 == 2:
            model.eval()
            with torch.no_grad():
                target = held_out.sum(dim=(1, 2))[:, None]
                validation = F.mse_loss(model(held_out), target)
            print(f"step {step} validation {validation.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
