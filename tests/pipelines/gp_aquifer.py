"""Water levels in an aquifer: a Gaussian process, whose few parameters are found by
L-BFGS on the marginal likelihood, from several starts; the best start is kept.

    python gp_aquifer.py --seed 3
"""

import argparse
import math

import torch
from torch import nn


class MaternProcess(nn.Module):
    """A process with a Matern 3/2 kernel of its own length for each coordinate."""

    def __init__(self, coordinates, generator):
        super().__init__()
        start = 0.6 * torch.randn(coordinates + 2, generator=generator).double()
        self.log_length = nn.Parameter(start[:coordinates])
        self.log_scale = nn.Parameter(start[coordinates])
        self.log_noise = nn.Parameter(start[coordinates + 1] - 2.0)
        self.mean = nn.Parameter(torch.zeros((), dtype=torch.double))

    def kernel(self, first, second):
        difference = (first[:, None] - second[None]) / self.log_length.exp()
        distance = (difference.square().sum(-1) + 1e-12).sqrt() * math.sqrt(3)
        return (2 * self.log_scale).exp() * (1 + distance) * torch.exp(-distance)

    def factor(self, places):
        noise = (2 * self.log_noise).exp() + 1e-6
        identity = torch.eye(len(places), dtype=places.dtype)
        return torch.linalg.cholesky(self.kernel(places, places) + noise * identity)

    def forward(self, places, levels):
        """The negative log marginal likelihood for each well."""
        lower = self.factor(places)
        rest = (levels - self.mean)[:, None]
        white = torch.linalg.solve_triangular(lower, rest, upper=False)
        value = 0.5 * white.square().sum() + lower.diagonal().log().sum()
        return value / len(levels) + 0.5 * math.log(2 * math.pi)

    @torch.no_grad()
    def predict(self, places, levels, wanted):
        lower = self.factor(places)
        weights = torch.cholesky_solve((levels - self.mean)[:, None], lower)
        across = self.kernel(wanted, places)
        inner = torch.linalg.solve_triangular(lower, across.T, upper=False)
        variance = (2 * self.log_scale).exp() - inner.square().sum(0)
        variance = variance + (2 * self.log_noise).exp()
        return self.mean + (across @ weights)[:, 0], variance.clamp_min(1e-9)


def wells(count, generator):
    """Two coordinates, and a third which has no influence."""
    places = torch.rand(count, 3, generator=generator).double() * 4
    levels = 3 + torch.sin(2 * places[:, 0]) * torch.cos(places[:, 1])
    levels = levels + 0.3 * places[:, 1]
    noise = torch.randn(count, generator=generator).double()
    return places, levels + 0.1 * noise


def fit(places, levels, args, generator, start):
    process = MaternProcess(places.shape[1], generator)
    optimizer = torch.optim.LBFGS(
        process.parameters(), lr=1.0, max_iter=4, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = process(places, levels)
        loss.backward()
        return loss

    for step in range(args.steps):
        optimizer.step(closure)
        with torch.no_grad():
            loss = process(places, levels).item()
        print(f"start {start} step {step} loss {loss:.6f}", flush=True)
    return loss, process


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="steps from each start")
    args = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(args.seed)
    places, levels = wells(90, generator)
    wanted, truth = wells(200, generator)
    results = [
        fit(places, levels, args, generator, start) for start in range(args.starts)
    ]
    loss, process = min(results, key=lambda result: result[0])
    mean, variance = process.predict(places, levels, wanted)
    error = (mean - truth).square().mean().sqrt()
    inside = ((mean - truth).abs() < 1.96 * variance.sqrt()).double().mean()
    lengths = ", ".join(f"{v:.2f}" for v in process.log_length.exp().tolist())
    print(f"best {loss:.4f} lengths {lengths}")
    print(f"error {error:.4f} of wells in the 95% band {inside:.3f}")


if __name__ == "__main__":
    main()
