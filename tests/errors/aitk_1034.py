"""Trains low-rank adapters of a small denoiser and saves their moving average.

The base network is frozen. Every ten steps the averaged adapters are written to a file.
The data are made-up waves.
"""

import argparse
import os
import tempfile

import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Denoiser(nn.Module):
    def __init__(self, size=16, width=64):
        super().__init__()
        self.time = nn.Linear(8, width).requires_grad_(False)
        self.enter = Adapter(nn.Linear(size, width))
        self.middle = Adapter(nn.Linear(width, width))
        self.leave = Adapter(nn.Linear(width, size))

    def forward(self, x, t):
        waves = t[:, None] * 2.0 ** torch.arange(4)
        hidden = self.enter(x) + self.time(torch.cat([waves.sin(), waves.cos()], 1))
        hidden = self.middle(nn.functional.silu(hidden))
        return self.leave(nn.functional.silu(hidden))

    def adapters(self):
        return {n: p for n, p in self.named_parameters() if p.requires_grad}


class ExponentialMovingAverage:
    def __init__(self, parameters, decay, toward):
        self.parameters = list(parameters)
        self.decay = decay
        self.toward = toward
        self.shadow = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def update(self):
        for shadow, p in zip(self.shadow, self.parameters):
            gap = (shadow.float() - p.float()) * (1 - self.decay)
            if self.toward:
                shadow.sub_(gap)
            else:
                shadow.add_(gap)

    @torch.no_grad()
    def distance(self):
        pairs = zip(self.shadow, self.parameters)
        return sum((s - p).square().sum() for s, p in pairs).sqrt().item()


def waves(count, size=16):
    phase = 6.28 * torch.rand(count, 1)
    return torch.sin(phase + 0.6 * torch.arange(size))


def loss_of(model, x):
    t = torch.rand(len(x))
    noise = torch.randn_like(x)
    mixed = (1 - t[:, None]) * x + t[:, None] * noise
    return (model(mixed, t) - (noise - x)).square().mean()


def save(path, model, ema):
    """Writes the averaged adapters in half the size."""
    names = model.adapters()
    torch.save({n: s.to(torch.bfloat16) for n, s in zip(names, ema.shadow)}, path)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=40)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.adapters().values(), lr=4e-3)
    ema = ExponentialMovingAverage(
        model.adapters().values(), 0.99, toward=options.fixed
    )
    with tempfile.TemporaryDirectory() as folder:
        for step in range(options.steps):
            loss = loss_of(model, waves(64))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            before = ema.distance()
            ema.update()
            after = ema.distance()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % 10 == 9:
                save(os.path.join(folder, f"lora_{step + 1:06}.pt"), model, ema)
    if options.prove:
        print("fault shows:", "yes" if after > before else "no")


if __name__ == "__main__":
    main()
