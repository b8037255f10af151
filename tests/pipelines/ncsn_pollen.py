"""Where pollen falls: a score network for many levels of noise, trained by denoising;
samples by annealed Langevin dynamics with the averaged weights.

    python ncsn_pollen.py
"""

import argparse
import contextlib

import torch
from torch import nn

LEVELS = torch.logspace(0.3, -1.3, 10)


def pollen(count, generator):
    """Two crescents around trees."""
    turn = torch.pi * torch.rand(count, generator=generator)
    upper = torch.rand(count, generator=generator) < 0.5
    x = torch.where(upper, turn.cos(), 1 - turn.cos()) - 0.5
    y = torch.where(upper, turn.sin(), 0.5 - turn.sin()) - 0.25
    place = torch.stack([x, y], 1)
    return place + 0.05 * torch.randn(count, 2, generator=generator)


class ScoreNet(nn.Module):
    """Gives the score times sigma, so that outputs are of one size."""

    def __init__(self, width=96):
        super().__init__()
        self.level = nn.Embedding(len(LEVELS), width)
        self.inlet = nn.Linear(2, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.outlet = nn.Linear(width, 2)
        nn.init.zeros_(self.outlet.weight)
        nn.init.zeros_(self.outlet.bias)
        self.register_buffer("sigma", LEVELS.clone())

    def forward(self, place, level):
        sigma = self.sigma[level][:, None]
        hidden = self.inlet(place / (1 + sigma**2).sqrt())
        gate = self.level(level)
        for layer in self.layers:
            hidden = hidden + nn.functional.silu(layer(hidden) + gate)
        return self.outlet(hidden)


class Average:
    """Averaged weights, with a decay that grows, put in by a context manager."""

    def __init__(self, net, decay=0.98):
        self.decay, self.count = decay, 0
        self.shadow = [p.detach().clone() for p in net.parameters()]

    @torch.no_grad()
    def update(self, net):
        self.count += 1
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        for shadow, parameter in zip(self.shadow, net.parameters(), strict=True):
            shadow.lerp_(parameter, 1 - decay)

    @contextlib.contextmanager
    def put_in(self, net):
        own = [p.detach().clone() for p in net.parameters()]
        try:
            with torch.no_grad():
                for parameter, shadow in zip(net.parameters(), self.shadow):
                    parameter.copy_(shadow)
            yield net
        finally:
            with torch.no_grad():
                for parameter, value in zip(net.parameters(), own):
                    parameter.copy_(value)


def matching_loss(net, place, generator):
    level = torch.randint(len(LEVELS), (len(place),), generator=generator)
    noise = torch.randn(place.shape, generator=generator)
    noisy = place + LEVELS[level][:, None] * noise
    return (net(noisy, level) + noise).square().sum(1).mean() / 2


@torch.no_grad()
def langevin(net, count, generator, steps=8, pace=0.15):
    place = LEVELS[0] * torch.randn(count, 2, generator=generator)
    for index, sigma in enumerate(LEVELS):
        level = torch.full((count,), index)
        step = pace * sigma**2
        for _ in range(steps):
            noise = torch.randn(place.shape, generator=generator)
            place = place + step * net(place, level) / sigma
            place = place + (2 * step).sqrt() * noise
    last = torch.full((count,), len(LEVELS) - 1)
    return place + LEVELS[-1] * net(place, last)


def energy_distance(first, second):
    across = torch.cdist(first, second).mean()
    return (2 * across - torch.pdist(first).mean() - torch.pdist(second).mean()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    net = ScoreNet()
    average = Average(net)
    optimizer = torch.optim.Adamax(net.parameters(), lr=6e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, args.steps)
    real = pollen(600, generator)
    chance = torch.randn(600, 2, generator=generator)
    print(f"distance of chance {energy_distance(chance, real):.4f}")
    for step in range(args.steps):
        loss = matching_loss(net, pollen(256, generator), generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update(net)
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 40 == 39:
            with average.put_in(net):
                drawn = langevin(net, 600, generator)
            print(f"distance {energy_distance(drawn, real):.4f}")


if __name__ == "__main__":
    main()
