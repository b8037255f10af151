"""Diffusion model of a day of wind (hourly gusts at a weathervane).

Magnitude-preserving layers, a learned balance over noise levels, and two power-law averages
of the weights from which an average of any other length is put together afterwards.
"""
import argparse
import copy
import glob
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

HOURS = 24


def windy_days(count, seed):
    g = torch.Generator().manual_seed(seed)
    hour = torch.arange(HOURS).float()
    r = lambda *s: torch.randn(*s, generator=g)
    breeze = torch.rand(count, 1, generator=g) < 0.6
    noon = 14 + 1.2 * r(count, 1)
    day = 1.6 * torch.exp(-(((hour - noon) / 3.5) ** 2)) * breeze
    onset = 24 * torch.rand(count, 1, generator=g)
    front = 1.3 * torch.sigmoid((hour - onset) / 0.7) * ~breeze
    days = day + front + 0.3 * r(count, 1) + 0.08 * r(count, HOURS).cumsum(1) / 2
    return days


def unit(w, eps=1e-4):
    norm = w.norm(dim=1, keepdim=True) / w.shape[1] ** 0.5
    return w / (norm + eps)


class MPLinear(nn.Module):
    """Rows are put back to unit magnitude whenever the layer is trained."""

    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i))

    def forward(self, x, gain=1.0):
        if self.training:
            with torch.no_grad():
                self.weight.copy_(unit(self.weight))
        return x @ (unit(self.weight) * (gain / self.weight.shape[1] ** 0.5)).T


def mp_silu(x):
    return F.silu(x) / 0.596


def mp_sum(a, b, t=0.3):
    return a.lerp(b, t) / ((1 - t) ** 2 + t**2) ** 0.5


class Fourier(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("freq", 2 * torch.pi * torch.randn(width))
        self.register_buffer("phase", 2 * torch.pi * torch.rand(width))

    def forward(self, t):
        return torch.cos(t[:, None] * self.freq + self.phase) * 2**0.5


class Denoiser(nn.Module):
    """D(x; sigma) with the usual preconditioning around a residual perceptron."""

    def __init__(self, width=80, blocks=3, data_std=0.8):
        super().__init__()
        self.data_std = data_std
        self.fourier, self.fourier_u = Fourier(32), Fourier(32)
        self.embed = MPLinear(32, width)
        self.enter = MPLinear(HOURS + 1, width)
        self.first = nn.ModuleList([MPLinear(width, width) for _ in range(blocks)])
        self.second = nn.ModuleList([MPLinear(width, width) for _ in range(blocks)])
        self.leave = MPLinear(width, HOURS)
        self.gain = nn.Parameter(torch.zeros(()))
        self.balance = MPLinear(32, 1)

    def forward(self, x, sigma):
        s, d = sigma[:, None], self.data_std
        total = (s**2 + d**2).sqrt()
        noise = sigma.log() / 4
        emb = mp_silu(self.embed(self.fourier(noise)))
        h = self.enter(torch.cat([x / total, torch.ones_like(s)], 1))
        for one, two in zip(self.first, self.second):
            y = mp_silu(one(mp_silu(h)) * (1 + emb) / 2**0.5)
            h = mp_sum(h, two(y))
        f = self.leave(h, gain=self.gain)
        return d**2 / total**2 * x + s * d / total * f

    def uncertainty(self, sigma):
        return self.balance(self.fourier_u(sigma.log() / 4))[:, 0]


def weighted_mse(net, x, g):
    sigma = (-0.8 + 1.2 * torch.randn(len(x), generator=g)).exp()
    noisy = x + sigma[:, None] * torch.randn(x.shape, generator=g)
    weight = (sigma**2 + net.data_std**2) / (sigma * net.data_std) ** 2
    return weight * (net(noisy, sigma) - x).pow(2).mean(1), sigma


class PowerAverage:
    def __init__(self, net, width):
        self.net, self.exponent = copy.deepcopy(net).eval(), exponent_of(width)

    @torch.no_grad()
    def update(self, net, t):
        beta = (1 - 1 / t) ** (self.exponent + 1)
        for slow, fast in zip(self.net.parameters(), net.parameters()):
            slow.lerp_(fast, 1 - beta)


def exponent_of(width):
    t = width**-2
    return float(np.roots([1, 7, 16 - t, 12 - t]).real.max())


def overlap(ta, ga, tb, gb):
    ratio, latest = ta / tb, np.maximum(ta, tb)
    power = np.where(ta < tb, gb, -ga)
    return (ga + 1) * (gb + 1) * ratio**power / ((ga + gb + 1) * latest)


def assemble(folder, net, width, last):
    """Least-squares mixture of the stored averages for a profile of another width."""
    stored = [
        torch.load(f, weights_only=True)
        for f in sorted(glob.glob(f"{folder}/avg_*.pt"))
    ]
    t = np.array([s["t"] for s in stored], dtype=np.float64)
    gamma = np.array([s["exponent"] for s in stored])
    a = overlap(t[:, None], gamma[:, None], t[None], gamma[None])
    b = overlap(t, gamma, np.float64(last), exponent_of(width))
    mix = np.linalg.lstsq(a, b, rcond=1e-10)[0]
    out = copy.deepcopy(net).eval()
    with torch.no_grad():
        for name, p in out.named_parameters():
            p.copy_(
                sum(float(m) * s["net"][name].double() for m, s in zip(mix, stored))
            )
    return out


@torch.no_grad()
def validation(net, days):
    net.eval()
    g = torch.Generator().manual_seed(31)
    return np.mean([weighted_mse(net, days, g)[0].mean().item() for _ in range(8)])


@torch.no_grad()
def sample(net, count, seed, steps=18, low=0.01, high=20.0, rho=7):
    net.eval()
    g = torch.Generator().manual_seed(seed)
    ramp = torch.linspace(0, 1, steps)
    sigmas = (high ** (1 / rho) + ramp * (low ** (1 / rho) - high ** (1 / rho))) ** rho
    sigmas = torch.cat([sigmas, torch.zeros(1)])
    x = high * torch.randn(count, HOURS, generator=g)
    for now, then in zip(sigmas[:-1], sigmas[1:]):
        slope = (x - net(x, now.expand(count))) / now
        ahead = x + (then - now) * slope
        if then > 0:
            slope = 0.5 * (slope + (ahead - net(ahead, then.expand(count))) / then)
            ahead = x + (then - now) * slope
        x = ahead
    return x


def sliced_distance(a, b, directions=64):
    g = torch.Generator().manual_seed(0)
    d = F.normalize(torch.randn(HOURS, directions, generator=g), dim=0)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


def train(net, days, steps, folder, g):
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2, betas=(0.9, 0.99))
    hold = max(1, steps // 5)
    plan = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: max(t / hold, 1) ** -0.5
    )
    averages = [PowerAverage(net, 0.05), PowerAverage(net, 0.10)]
    for t in range(1, steps + 1):
        net.train()
        pick = torch.randint(0, len(days), (128,), generator=g)
        mse, sigma = weighted_mse(net, days[pick], g)
        u = net.uncertainty(sigma)
        loss = (mse / u.exp() + u).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plan.step()
        for average in averages:
            average.update(net, t)
        if t % max(1, steps // 8) == 0 or t == steps:
            for k, average in enumerate(averages):
                entry = {
                    "t": t,
                    "exponent": average.exponent,
                    "net": average.net.state_dict(),
                }
                torch.save(entry, f"{folder}/avg_{k}_{t:06d}.pt")
            print(
                f"{t:5d} loss {loss.item():+.3f} weighted mse {mse.mean().item():.3f}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=640)
    args = parser.parse_args()
    torch.manual_seed(9)
    days, valid, test = windy_days(4000, 1), windy_days(500, 2), windy_days(500, 3)
    folder = tempfile.mkdtemp(prefix="weathervanes_")
    net = Denoiser(data_std=days.std().item())
    train(net, days, args.steps, folder, torch.Generator().manual_seed(4))

    board = {}
    for width in (0.03, 0.06, 0.10, 0.15):
        candidate = assemble(folder, net, width, args.steps)
        board[width] = (validation(candidate, valid), candidate)
        print(
            f"average of width {width:.2f}: held-out weighted mse {board[width][0]:.4f}"
        )
    print(f"weights of the last step: {validation(net, valid):.4f}")
    best = min(board, key=lambda w: board[w][0])
    drawn = sample(board[best][1], 500, seed=5)
    torch.save(board[best][1].state_dict(), os.path.join(folder, "final.pt"))
    print(
        f"width {best}: sliced distance to test days {sliced_distance(drawn, test):.4f} "
        f"(validation days {sliced_distance(valid, test):.4f})"
    )


if __name__ == "__main__":
    main()
