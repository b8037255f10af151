"""Energy-based model of star positions: contrastive divergence with a persistent chain pool.

Langevin sampling needs gradients of the inputs only, so the parameters are frozen meanwhile;
spectral normalisation by parametrizations; the gradients of the weights get decaying noise.
"""
import argparse
import math

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm


class Energy(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(
            spectral_norm(nn.Linear(2, width)),
            nn.SiLU(),
            spectral_norm(nn.Linear(width, width)),
            nn.SiLU(),
            spectral_norm(nn.Linear(width, width)),
            nn.SiLU(),
            nn.Linear(width, 1),
        )
        self.gain = nn.Parameter(torch.tensor(10.0))

    def forward(self, x):
        # A weak bowl keeps the density proper far from the data.
        return self.gain * self.net(6 * x).squeeze(-1) + 0.05 * x.pow(2).sum(-1)


def stars(n, gen=None):
    """Four clusters, north, east, south and west."""
    way = torch.randint(0, 4, (n,), generator=gen) * (math.pi / 2)
    centre = 1.8 * torch.stack([way.cos(), way.sin()], 1)
    return centre + 0.3 * torch.randn(n, 2, generator=gen)


def langevin(model, x, steps=20, size=0.02):
    """Unadjusted Langevin dynamics; the training flags are put back afterwards."""
    was_training = model.training
    model.eval()
    model.requires_grad_(False)
    x = x.clone().requires_grad_(True)
    for _ in range(steps):
        (slope,) = torch.autograd.grad(model(x).sum(), x)
        with torch.no_grad():
            x.add_(slope.clamp(-5, 5), alpha=-size)
            x.add_(torch.randn_like(x), alpha=math.sqrt(2 * size))
    model.requires_grad_(True)
    model.train(was_training)
    return x.detach()


class Pool:
    """Chains that go on where they stopped; a few start again from noise."""

    def __init__(self, size):
        self.x = 2 * torch.randn(size, 2)

    def draw(self, n, fresh=0.05):
        idx = torch.randperm(len(self.x))[:n]
        start = self.x[idx]
        new = torch.rand(n) < fresh
        start[new] = 2 * torch.randn(int(new.sum()), 2)
        return idx, start

    def put(self, idx, x):
        self.x[idx] = x


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    torch.manual_seed(17)
    data = stars(4000, torch.Generator().manual_seed(1))
    held = stars(1000, torch.Generator().manual_seed(2))
    model, pool = Energy(), Pool(1024)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.5, 0.999))
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.98)
    for step in range(args.steps):
        real = data[torch.randint(0, len(data), (256,))]
        real = real + 0.02 * torch.randn_like(real)
        idx, start = pool.draw(256)
        fake = langevin(model, start)
        pool.put(idx, fake)
        opt.zero_grad()
        energy_real, energy_fake = model(torch.cat([real, fake])).chunk(2)
        gap = energy_real.mean() - energy_fake.mean()
        penalty = 0.005 * (energy_real.pow(2).mean() + energy_fake.pow(2).mean())
        (gap + penalty).backward()
        sigma = 1e-3 / (1 + step) ** 0.55
        for q in model.parameters():
            q.grad.add_(torch.randn_like(q.grad), alpha=sigma)
        opt.step()
        sched.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step:3d} gap {gap.item():+.4f} penalty {penalty.item():.4f}")

    model.eval()
    with torch.no_grad():
        # Energies of the clusters against those of the same stars, turned by an eighth.
        c = math.sqrt(0.5)
        turned = held @ torch.tensor([[c, c], [-c, c]])
        better = (model(held) < model(turned)).float().mean().item()
    print(f"held-out stars with less energy than the turned ones: {better:.3f}")


if __name__ == "__main__":
    main()
