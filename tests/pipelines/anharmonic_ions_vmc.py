"""Ground state of two ions in an anharmonic trap by variational Monte Carlo.

A small network is the logarithm of the wave function. Configurations are sampled from
the network itself with Metropolis walkers, local energies follow from its first and
second derivatives, and the gradient of the energy is a covariance that a surrogate
expression delivers. The surrogate's own value has no meaning; the energy is logged and
compared with a diagonalisation on a grid.
"""

import argparse
import dataclasses
import math
import tempfile

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, vmap

STIFFNESS, QUARTIC, COUPLING = 1.0, 0.3, 0.5


def potential(x):
    """Works for torch and numpy, coordinates in the last axis."""
    a, b = x[..., 0], x[..., 1]
    trap = 0.5 * STIFFNESS * (a**2 + b**2) + QUARTIC * (a**4 + b**4)
    return trap + COUPLING * (a - b) ** 2


def grid_ground_energy(points=48, reach=4.0):
    """Reference: sine-basis discrete variable representation in two dimensions."""
    step = 2 * reach / (points + 1)
    x = -reach + step * np.arange(1, points + 1)
    i = np.arange(points)
    gap = i[:, None] - i[None, :]
    with np.errstate(divide="ignore"):
        kinetic = np.where(gap == 0, math.pi**2 / 3, 2.0 * (-1.0) ** gap / gap**2.0)
    kinetic = kinetic / (2 * step**2)
    eye = np.eye(points)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)
    total = np.kron(kinetic, eye) + np.kron(eye, kinetic)
    total += np.diag(potential(grid).ravel())
    vector = np.exp(-0.5 * (grid**2).sum(axis=-1)).ravel()
    shift = np.abs(total).sum(axis=1).max()
    basis = [vector / np.linalg.norm(vector)]
    alphas, betas = [], []
    for _ in range(120):
        w = total @ basis[-1]
        alphas.append(basis[-1] @ w)
        for q in basis:
            w -= (q @ w) * q
        norm = np.linalg.norm(w)
        if norm < 1e-10 * shift:
            break
        betas.append(norm)
        basis.append(w / norm)
    k = len(alphas)
    tri = np.diag(alphas) + np.diag(betas[: k - 1], 1) + np.diag(betas[: k - 1], -1)
    return float(np.linalg.eigvalsh(tri)[0])


class LogPsi(nn.Module):
    """Gaussian envelope times a positive network, even under x -> -x."""

    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.out = nn.Linear(width, 1)
        self.log_width = nn.Parameter(torch.tensor(0.0))
        nn.init.normal_(self.out.weight, std=0.02)

    def forward(self, x):
        envelope = -0.5 * self.log_width.exp() * x.square().sum(dim=-1)
        even = self.out(self.net(x) + self.net(-x)).squeeze(-1)
        return envelope + even


class Walkers:
    def __init__(self, count, generator):
        self.generator = generator
        self.x = torch.randn(count, 2, generator=generator, dtype=torch.float64)
        self.stride = 0.8

    @torch.no_grad()
    def advance(self, log_psi, sweeps):
        current = 2 * log_psi(self.x)
        accepted = 0.0
        for _ in range(sweeps):
            jump = torch.randn(
                self.x.shape, generator=self.generator, dtype=self.x.dtype
            )
            proposal = self.x + self.stride * jump
            new = 2 * log_psi(proposal)
            dice = torch.rand(len(self.x), generator=self.generator, dtype=self.x.dtype)
            take = dice.log() < new - current
            self.x = torch.where(take[:, None], proposal, self.x)
            current = torch.where(take, new, current)
            accepted += take.double().mean().item() / sweeps
        self.stride *= math.exp(0.2 * (accepted - 0.5))
        return self.x, accepted


def local_energies(log_psi, x):
    weights = {k: v.detach() for k, v in log_psi.named_parameters()}

    def single(point):
        return functional_call(log_psi, weights, (point,))

    slope = vmap(grad(single))(x)
    curvature = vmap(hessian(single))(x).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return -0.5 * (curvature + slope.square().sum(dim=-1)) + potential(x)


def clip_outliers(energy, widths=5.0):
    centre = energy.median()
    spread = (energy - centre).abs().mean()
    return energy.clamp(centre - widths * spread, centre + widths * spread)


@dataclasses.dataclass
class Run:
    seed: int
    updates: int = 300
    walkers: int = 300
    sweeps: int = 8
    lr: float = 8e-3


def optimise(run, reference):
    torch.manual_seed(run.seed)
    log_psi = LogPsi().double()
    walkers = Walkers(run.walkers, torch.Generator().manual_seed(run.seed + 60))
    walkers.advance(log_psi, 100)
    optimizer = torch.optim.Adam(log_psi.parameters(), lr=run.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda update: 1 / (1 + update / 60)
    )
    history = []
    for update in range(1, run.updates + 1):
        x, accepted = walkers.advance(log_psi, run.sweeps)
        energy = local_energies(log_psi, x)
        pull = clip_outliers(energy)
        pull = pull - pull.mean()
        optimizer.zero_grad()
        surrogate = 2 * (pull * log_psi(x)).mean()
        surrogate.backward()
        optimizer.step()
        schedule.step()
        history.append((energy.mean().item(), energy.var().item()))
        if update % 25 == 0:
            recent = np.mean(history[-25:], axis=0)
            print(
                f"update {update:3d}  energy {recent[0]:.5f} "
                f"({recent[0] - reference:+.5f})  variance {recent[1]:.5f}  "
                f"accepted {accepted:.2f}  surrogate {surrogate.item():+.4f}"
            )
    return log_psi, walkers


def final_estimate(log_psi, walkers, rounds=25):
    log_psi.eval()
    means = []
    for _ in range(rounds):
        x, _ = walkers.advance(log_psi, 20)
        means.append(local_energies(log_psi, x).mean().item())
    return float(np.mean(means)), float(np.std(means, ddof=1) / math.sqrt(rounds))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=Run.updates)
    args = parser.parse_args()
    reference = grid_ground_energy()
    print(f"grid reference {reference:.6f}")
    log_psi, walkers = optimise(Run(args.seed, args.updates), reference)
    energy, error = final_estimate(log_psi, walkers)
    print(f"energy {energy:.6f} +- {error:.6f}, reference {reference:.6f}")
    with tempfile.NamedTemporaryFile(suffix=".pt") as handle:
        torch.save(log_psi.state_dict(), handle)
        print(f"{handle.tell()} bytes kept")


if __name__ == "__main__":
    main()
