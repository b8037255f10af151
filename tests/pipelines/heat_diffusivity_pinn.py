"""Finds the diffusivity of a rod, which is unknown, from few noisy temperatures: a
physics-informed network with second derivatives and one more parameter. The points of
the equation have weights of their own, which ascend the same loss that the network
descends, from the same backward pass. Double precision.

    python heat_diffusivity_pinn.py --steps 500
"""

import argparse
import math

import torch
from torch import nn

TRUE_DIFFUSIVITY = 0.15


def temperature(x, t):
    """Two decaying waves between cold ends, for x and t from 0 to 1."""
    result = torch.zeros_like(x)
    for mode, height in ((1, 1.0), (2, 0.6)):
        k = math.pi * mode
        fade = torch.exp(-TRUE_DIFFUSIVITY * k**2 * t)
        result = result + height * fade * torch.sin(k * x)
    return result


class Rod(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.field = nn.Sequential(
            nn.Linear(2, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 1),
        )
        # The logarithm keeps it positive; the first guess is far too high.
        self.log_diffusivity = nn.Parameter(torch.tensor(0.0))

    def forward(self, x, t):
        # Cold ends by construction.
        return 4 * x * (1 - x) * self.field(torch.cat([2 * x - 1, 2 * t - 1], dim=1))

    def residual(self, x, t):
        x = x.clone().requires_grad_(True)
        t = t.clone().requires_grad_(True)
        u = self(x, t)
        u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        return u_t - self.log_diffusivity.exp() * u_xx


class PointWeights(nn.Module):
    """Positive weights with mean one."""

    def __init__(self, points):
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(points, 1))

    def forward(self):
        weights = nn.functional.softplus(self.raw)
        return weights / weights.mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--lr", type=float, default=1.5e-2)
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(args.seed)

    seen_x, seen_t = torch.rand(120, 1), torch.rand(120, 1)
    seen = temperature(seen_x, seen_t) + 0.02 * torch.randn(120, 1)
    x, t = torch.rand(2, args.points, 1)
    grid = torch.linspace(0, 1, 21)
    test_x, test_t = (
        c.reshape(-1, 1) for c in torch.meshgrid(grid, grid, indexing="ij")
    )
    truth = temperature(test_x, test_t)

    rod, weights = Rod(), PointWeights(args.points)
    optimizer = torch.optim.Adam(
        [
            {"params": rod.field.parameters()},
            {"params": [rod.log_diffusivity], "lr": 4 * args.lr},
        ],
        lr=args.lr,
    )
    climber = torch.optim.Adam(weights.parameters(), lr=0.01, maximize=True)
    schedule = torch.optim.lr_scheduler.ChainedScheduler(
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, total_iters=20),
            torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.1 ** (1 / args.steps)),
        ]
    )
    for step in range(args.steps):
        data = (rod(seen_x, seen_t) - seen).square().mean()
        physics = (weights() * rod.residual(x, t).square()).mean()
        loss = data + 0.05 * physics
        optimizer.zero_grad()
        climber.zero_grad()
        loss.backward()
        optimizer.step()
        climber.step()
        schedule.step()
        if step % 10 == 0:
            print(
                f"step {step} loss {loss.item():.6f} data {data.item():.6f} "
                f"diffusivity {rod.log_diffusivity.exp().item():.4f}",
                flush=True,
            )
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            with torch.no_grad():
                error = (rod(test_x, test_t) - truth).norm() / truth.norm()
                spread = weights().max().item()
            print(
                f"  relative error {error:.4f}, largest weight {spread:.2f}", flush=True
            )
    found = rod.log_diffusivity.exp().item()
    print(f"diffusivity {found:.4f}, in truth {TRUE_DIFFUSIVITY}")


if __name__ == "__main__":
    main()
