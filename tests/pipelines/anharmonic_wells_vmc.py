"""Ground state of coupled quartic oscillators with a neural trial wave function.

Walkers sample |psi|^2 with Metropolis moves; the network follows the energy gradient.
The exact level for comparison comes from diagonalising in a truncated oscillator basis.
"""
import argparse
import json
import math
import tempfile
from pathlib import Path

import torch
from torch import nn

torch.set_default_dtype(torch.double)

QUARTIC = 0.25
COUPLING = 0.6


def potential(x):
    bowl = 0.5 * x.pow(2).sum(-1) + QUARTIC * x.pow(4).sum(-1)
    return bowl + COUPLING * x[:, 0] * x[:, 1]


def exact_level(basis=26):
    n = torch.arange(basis, dtype=torch.double)
    lower = torch.diag(torch.sqrt(n[1:]), 1)
    q = (lower + lower.T) / math.sqrt(2.0)
    one = torch.diag(n + 0.5) + QUARTIC * torch.linalg.matrix_power(q, 4)
    eye = torch.eye(basis)
    h = torch.kron(one, eye) + torch.kron(eye, one) + COUPLING * torch.kron(q, q)
    return torch.linalg.eigvalsh(h)[0].item()


class TrialWave(nn.Module):
    """log|psi|, symmetric under exchange and under reflection of both coordinates."""

    def __init__(self, width=24):
        super().__init__()
        self.lin1 = nn.Linear(2, width)
        self.lin2 = nn.Linear(width, width)
        self.lin3 = nn.Linear(width, 1, bias=False)
        self.log_curvature = nn.Parameter(torch.zeros(()))
        nn.init.zeros_(self.lin3.weight)

    def body(self, x):
        h = torch.tanh(self.lin1(x))
        h = h + torch.tanh(self.lin2(h))
        return self.lin3(h).squeeze(-1)

    def forward(self, x):
        swapped = x.flip(-1)
        inside = self.body(x) + self.body(-x) + self.body(swapped) + self.body(-swapped)
        return 0.25 * inside - 0.5 * self.log_curvature.exp() * x.pow(2).sum(-1)


def local_energy(wave, x):
    x = x.detach().requires_grad_(True)
    logpsi = wave(x)
    (slope,) = torch.autograd.grad(logpsi.sum(), x, create_graph=True)
    laplacian = torch.zeros(x.shape[0])
    for d in range(x.shape[1]):
        (second,) = torch.autograd.grad(slope[:, d].sum(), x, retain_graph=True)
        laplacian = laplacian + second[:, d]
    kinetic = -0.5 * (laplacian + slope.pow(2).sum(-1))
    return (kinetic + potential(x)).detach()


class Walkers:
    def __init__(self, count, seed):
        self.rng = torch.Generator().manual_seed(seed)
        self.x = 0.7 * torch.randn(count, 2, generator=self.rng)
        self.width = 0.6
        self.acceptance = 0.5

    @torch.no_grad()
    def advance(self, wave, sweeps):
        current = wave(self.x)
        accepted = 0.0
        for _ in range(sweeps):
            noise = torch.randn(self.x.shape, generator=self.rng)
            proposal = self.x + self.width * noise
            fresh = wave(proposal)
            coin = torch.rand(current.shape, generator=self.rng).log()
            take = coin < 2.0 * (fresh - current)
            self.x = torch.where(take[:, None], proposal, self.x)
            current = torch.where(take, fresh, current)
            accepted += take.double().mean().item()
        self.acceptance = accepted / sweeps
        return self.x

    def tune(self):
        self.width *= 1.05 if self.acceptance > 0.5 else 0.95


def rein_in(energy, spread=5.0):
    centre = energy.median()
    window = spread * (energy - centre).abs().mean()
    return energy.clamp(centre - window, centre + window)


def optimise(wave, walkers, steps, sweeps, history):
    optimizer = torch.optim.Adam(wave.parameters(), lr=1.2e-2, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: 1.0 / (1.0 + 4.0 * t / steps)
    )
    walkers.advance(wave, 100)
    for step in range(1, steps + 1):
        x = walkers.advance(wave, sweeps)
        walkers.tune()
        energy = local_energy(wave, x)
        weight = rein_in(energy)
        weight = weight - weight.mean()

        optimizer.zero_grad()
        surrogate = 2.0 * (weight * wave(x)).mean()
        surrogate.backward()
        optimizer.step()
        schedule.step()

        history.append({"step": step, "energy": energy.mean().item()})
        if step == 1 or step % max(1, steps // 8) == 0:
            print(
                f"[{step:4d}] E {energy.mean():.5f}  var {energy.var():.5f}  "
                f"accept {walkers.acceptance:.2f}  width {walkers.width:.2f}",
                flush=True,
            )


def measure(wave, seed, blocks=16, count=512):
    wave.requires_grad_(False)
    walkers = Walkers(count, seed)
    for _ in range(20):
        walkers.advance(wave, 5)
        walkers.tune()
    means = []
    for _ in range(blocks):
        x = walkers.advance(wave, 12)
        means.append(local_energy(wave, x).mean())
    means = torch.stack(means)
    wave.requires_grad_(True)
    return means.mean().item(), (means.std() / math.sqrt(blocks)).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--walkers", type=int, default=512)
    parser.add_argument("--sweeps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    wave = TrialWave()
    walkers = Walkers(args.walkers, args.seed + 100)
    history = []
    optimise(wave, walkers, args.steps, args.sweeps, history)

    folder = Path(tempfile.mkdtemp(prefix="wells_"))
    torch.save({"wave": wave.state_dict(), "walkers": walkers.x}, folder / "wave.pt")
    (folder / "history.json").write_text(json.dumps(history))

    level, half = measure(wave, args.seed + 200)
    print(f"variational level {level:.5f} +- {half:.5f}   exact {exact_level():.5f}")


if __name__ == "__main__":
    main()
