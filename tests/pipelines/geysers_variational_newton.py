"""Waiting time until the next eruption of a geyser, with honest error bars.

The weights follow a Gaussian posterior that the optimizer itself maintains: a
variational online Newton method keeps a mean and a diagonal precision, draws weights
for every forward pass, and turns the product of gradient and draw into a curvature
estimate (after Shen et al., 2024).
"""

import contextlib
import dataclasses
import math
import tempfile
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class VariationalNewton(torch.optim.Optimizer):
    """Mean in the parameters, precision in the state."""

    def __init__(
        self, params, lr, samples_seen, prior=1.0, betas=(0.9, 0.999), hess=1.0
    ):
        defaults = dict(lr=lr, prior=prior, betas=betas, hess=hess)
        super().__init__(params, defaults)
        self.ess = samples_seen
        for group in self.param_groups:
            group["delta"] = group["prior"] / self.ess
            for p in group["params"]:
                self.state[p] = {
                    "step": 0,
                    "momentum": torch.zeros_like(p),
                    "hess": torch.full_like(p, group["hess"]),
                    "grad_sum": torch.zeros_like(p),
                    "hess_sum": torch.zeros_like(p),
                    "draws": 0,
                }

    def _each(self):
        for group in self.param_groups:
            for p in group["params"]:
                yield group, p, self.state[p]

    @contextlib.contextmanager
    def drawn_weights(self, collect=True):
        """Inside, the parameters hold a draw; on leaving, the mean comes back."""
        means, noises = [], []
        with torch.no_grad():
            for group, p, state in self._each():
                precision = self.ess * (state["hess"] + group["delta"])
                noise = torch.randn_like(p) * precision.rsqrt()
                means.append(p.clone())
                noises.append(noise)
                p.add_(noise)
        try:
            yield
            if collect:
                self._collect(noises)
        finally:
            with torch.no_grad():
                for (group, p, state), mean in zip(self._each(), means):
                    p.copy_(mean)

    @torch.no_grad()
    def _collect(self, noises):
        for (group, p, state), noise in zip(self._each(), noises):
            precision = self.ess * (state["hess"] + group["delta"])
            state["grad_sum"].add_(p.grad)
            state["hess_sum"].add_(p.grad * noise * precision)
            state["draws"] += 1

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group, p, state in self._each():
            beta1, beta2 = group["betas"]
            state["step"] += 1
            grad = state["grad_sum"] / state["draws"]
            guess = state["hess_sum"] / state["draws"]
            state["momentum"].lerp_(grad, 1 - beta1)
            old = state["hess"]
            total = old + group["delta"]
            state["hess"] = (
                beta2 * old
                + (1 - beta2) * guess
                + 0.5 * (1 - beta2) ** 2 * (old - guess).square() / total
            )
            direction = state["momentum"] / (1 - beta1 ** state["step"])
            direction = direction + group["delta"] * p
            p.addcdiv_(direction, state["hess"] + group["delta"], value=-group["lr"])
            state["grad_sum"].zero_()
            state["hess_sum"].zero_()
            state["draws"] = 0
        return loss


@dataclasses.dataclass
class Settings:
    seed: int = 0
    eruptions: int = 1400
    batch: int = 50
    epochs: int = 40
    draws_per_step: int = 2
    lr: float = 0.08
    noise_std: float = 0.25


def watch_geyser(count, rng):
    """Length and height of an eruption, pool level, air pressure, quake count."""
    length = np.where(rng.random(count) < 0.35, 1.9, 4.2) + rng.normal(0, 0.35, count)
    height = 38 + 3.5 * length + rng.normal(0, 3, count)
    pool = rng.normal(0, 1, count)
    pressure = rng.normal(1013, 8, count)
    quakes = rng.poisson(1.5, count)
    wait = (
        35
        + 9.5 * length
        - 3.0 * np.tanh(pool) * length
        + 0.12 * (pressure - 1013)
        - 2.5 * np.sqrt(quakes)
        + 5 * np.sin(height / 6)
    )
    table = np.stack([length, height, pool, pressure, quakes], axis=1)
    return table, wait + rng.normal(0, 3.0, count)


def prepare(settings):
    rng = np.random.default_rng(settings.seed + 5)
    table, wait = watch_geyser(settings.eruptions, rng)
    n_fit = int(0.75 * len(table))
    mean, std = table[:n_fit].mean(0), table[:n_fit].std(0)
    centre, spread = wait[:n_fit].mean(), wait[:n_fit].std()
    x = torch.tensor((table - mean) / std, dtype=torch.float32)
    y = torch.tensor((wait - centre) / spread, dtype=torch.float32)
    fit, held = TensorDataset(x[:n_fit], y[:n_fit]), (x[n_fit:], y[n_fit:])
    return fit, held, float(spread)


def negative_log_likelihood(guess, wait, std):
    constant = math.log(std) + 0.5 * math.log(2 * math.pi)
    return (0.5 * ((guess - wait) / std).square() + constant).mean()


def predictive(model, optimizer, table, draws):
    model.eval()
    guesses = []
    with torch.no_grad():
        for _ in range(draws):
            with optimizer.drawn_weights(collect=False):
                guesses.append(model(table).squeeze(1))
    model.train()
    return torch.stack(guesses)


def report(model, optimizer, held, settings, spread, draws=24):
    table, wait = held
    guesses = predictive(model, optimizer, table, draws)
    normal = torch.distributions.Normal(guesses, settings.noise_std)
    log_density = normal.log_prob(wait).logsumexp(0) - math.log(draws)
    mean = guesses.mean(0)
    std = (guesses.var(0) + settings.noise_std**2).sqrt()
    return {
        "nll": -log_density.mean().item(),
        "minutes": spread * (mean - wait).square().mean().sqrt().item(),
        "within95": ((mean - wait).abs() < 1.96 * std).float().mean().item(),
        "weights_std": spread * guesses.std(0).mean().item(),
    }


def train(settings):
    torch.manual_seed(settings.seed)
    fit, held, spread = prepare(settings)
    loader = DataLoader(
        fit,
        batch_size=settings.batch,
        shuffle=True,
        generator=torch.Generator().manual_seed(settings.seed + 1),
    )
    model = nn.Sequential(
        nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    optimizer = VariationalNewton(
        model.parameters(), lr=settings.lr, samples_seen=len(fit), hess=2.0
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=settings.epochs * len(loader)
    )
    model.train()
    for epoch in range(1, settings.epochs + 1):
        running = 0.0
        for table, wait in loader:
            for _ in range(settings.draws_per_step):
                with optimizer.drawn_weights():
                    optimizer.zero_grad()
                    guess = model(table).squeeze(1)
                    loss = negative_log_likelihood(guess, wait, settings.noise_std)
                    loss.backward()
                running += loss.item() * len(wait) / settings.draws_per_step
            optimizer.step()
            schedule.step()
        if epoch % 4 == 0:
            numbers = report(model, optimizer, held, settings, spread)
            text = "  ".join(f"{k} {v:.3f}" for k, v in numbers.items())
            print(f"{epoch:3d}  train {running / len(fit):.4f}  {text}")
    return model, optimizer


if __name__ == "__main__":
    parser = ArgumentParser(description="geyser waiting times")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    model, optimizer = train(Settings(seed=options.seed, epochs=options.epochs))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "posterior.pt"
        posterior = {"mean": model.state_dict(), "newton": optimizer.state_dict()}
        torch.save(posterior, target)
        print(f"posterior kept: {target.stat().st_size / 1024:.0f} KiB")
