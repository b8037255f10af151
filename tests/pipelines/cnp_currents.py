"""Ocean currents from a few drifting buoys: an attentive neural process. Each task is a
curve of its own; the number of known buoys differs from batch to batch.

    python cnp_currents.py
"""

import argparse
import math

import torch
from torch import nn
from torch.distributions import Normal


class Currents:
    """Sums of two waves with a random amplitude, seen at random places."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, *shape, low=0.0, high=1.0):
        return low + (high - low) * torch.rand(*shape, generator=self.generator)

    def batch(self, tasks, places):
        x = self.uniform(tasks, places, 1, low=-2, high=2)
        y = torch.zeros_like(x)
        for _ in range(2):
            height = self.uniform(tasks, 1, 1, low=0.3, high=1)
            rate = self.uniform(tasks, 1, 1, low=0.5, high=2.5)
            phase = self.uniform(tasks, 1, 1, high=2 * math.pi)
            y = y + height * torch.sin(rate * x + phase)
        noise = torch.randn(y.shape, generator=self.generator)
        return x, y + 0.05 * noise

    def known(self, low=3, high=12):
        return int(torch.randint(low, high + 1, (1,), generator=self.generator))


class NeuralProcess(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.place = nn.Sequential(
            nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.decode = nn.Sequential(
            nn.Linear(2 * width + 1, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 2),
        )

    def forward(self, known_x, known_y, x):
        pairs = self.encode(torch.cat([known_x, known_y], -1))
        found, _ = self.attend(
            self.place(x), self.place(known_x), pairs, need_weights=False
        )
        whole = pairs.mean(1, keepdim=True).expand(-1, x.shape[1], -1)
        mean, spread = self.decode(torch.cat([found, whole, x], -1)).chunk(2, -1)
        return Normal(mean, 0.02 + 0.98 * nn.functional.softplus(spread))


def split(x, y, known):
    return (x[:, :known], y[:, :known]), (x[:, known:], y[:, known:])


@torch.no_grad()
def evaluate(model, seed):
    """Log likelihood and error by the number of known places, on tasks of its own."""
    model.eval()
    lines = []
    for known in (3, 6, 12):
        x, y = Currents(seed).batch(200, 30)
        context, (x, y) = split(x, y, known)
        curve = model(*context, x)
        likelihood = curve.log_prob(y).mean().item()
        error = (curve.mean - y).square().mean().sqrt().item()
        lines.append(f"{known} known: {likelihood:.3f} / {error:.3f}")
    model.train()
    return ", ".join(lines)


def train(model, data, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 15) * (1 - step / steps) ** 0.5
    )
    for step in range(steps):
        x, y = data.batch(32, 24)
        context, (x, y) = split(x, y, data.known())
        loss = -model(*context, x).log_prob(y).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        yield step, loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = NeuralProcess()
    for step, loss in train(model, Currents(args.seed), args.steps):
        print(f"step {step} loss {loss:.4f}", flush=True)
        if step % 40 == 39:
            print(f"log likelihood / error with {evaluate(model, args.seed + 7)}")


if __name__ == "__main__":
    main()
