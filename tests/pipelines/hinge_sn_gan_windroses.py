"""A conditional hinge GAN draws winds of four seasons.

Spectral norm in the critic, which projects on an embedding of the season, and BatchNorm
in the generator; a rate for each, beta1 = 0. Two steps of the critic for one of the
generator, during which the critic is frozen. The average of the generator takes over
its buffers as they are. Losses hover; the energy distance of the average falls.
"""

import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)

config = {
    "seed": 31,
    "steps": parser.parse_args().steps,
    "batch": 128,
    "critic_updates": 2,
    "optim": {
        "g": {"lr": 1e-3, "betas": (0.0, 0.9)},
        "d": {"lr": 4e-3, "betas": (0.0, 0.9)},
    },
    "ema": 0.95,
    "latent": 8,
}
torch.manual_seed(config["seed"])


def wind(season):
    """Each season has two prevailing directions and a speed."""
    n = len(season)
    side = torch.randint(0, 2, (n,))
    angle = season * math.pi / 4 + side * (math.pi * 0.8) + 0.15 * torch.randn(n)
    speed = 1.0 + 0.25 * season + 0.1 * torch.randn(n)
    return torch.stack([speed * angle.cos(), speed * angle.sin()], 1)


class Generator(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.label = nn.Embedding(4, 8)
        self.net = nn.Sequential(
            nn.Linear(z + 8, 64), nn.BatchNorm1d(64), nn.ReLU(),
            nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2),
        )  # fmt: skip

    def forward(self, z, s):
        return self.net(torch.cat([z, self.label(s)], 1))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            spectral_norm(nn.Linear(2, 64)), nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(64, 64)), nn.LeakyReLU(0.2),
        )  # fmt: skip
        self.score = spectral_norm(nn.Linear(64, 1))
        self.label = spectral_norm(nn.Embedding(4, 64))

    def forward(self, x, s):
        h = self.body(x)
        return self.score(h).squeeze(1) + (self.label(s) * h).sum(1)


def energy_distance(a, b):
    def off(x):
        return torch.cdist(x, x).sum() / (len(x) * (len(x) - 1))

    return (2 * torch.cdist(a, b).mean() - off(a) - off(b)).item()


def judge(gen):
    gen.eval()
    with torch.no_grad():
        out = []
        for k in range(4):
            s = torch.full((300,), k)
            fake = gen(torch.randn(300, config["latent"]), s)
            out.append(energy_distance(fake, wind(s)))
    return sum(out) / 4


def draw():
    batch = config["batch"]
    return torch.randn(batch, config["latent"]), torch.randint(0, 4, (batch,))


G, D = Generator(config["latent"]), Critic()
G_ema = copy.deepcopy(G).requires_grad_(False)
opt_g = torch.optim.Adam(G.parameters(), **config["optim"]["g"])
opt_d = torch.optim.Adam(D.parameters(), **config["optim"]["d"])

print(f"before: energy distance {judge(G_ema):.4f}")
for step in range(1, config["steps"] + 1):
    G.train()
    D.train()
    D.requires_grad_(True)
    for _ in range(config["critic_updates"]):
        z, s = draw()
        with torch.no_grad():
            fake = G(z, s)
        real = wind(s)
        d_loss = F.relu(1 - D(real, s)).mean() + F.relu(1 + D(fake, s)).mean()
        opt_d.zero_grad(set_to_none=True)
        d_loss.backward()
        opt_d.step()

    D.requires_grad_(False)
    z, s = draw()
    g_loss = -D(G(z, s), s).mean()
    opt_g.zero_grad(set_to_none=True)
    g_loss.backward()
    opt_g.step()

    with torch.no_grad():
        for e, p in zip(G_ema.parameters(), G.parameters()):
            e.lerp_(p, 1 - config["ema"])
        for e, b in zip(G_ema.buffers(), G.buffers()):
            e.copy_(b)
    if step % 20 == 0:
        print(
            f"step {step:3d} d {d_loss.item():.3f} g {g_loss.item():+.3f} "
            f"energy {judge(G_ema):.4f}"
        )
