# DCGAN-ish on 16x16 glyphs. Hinge loss, spectral norm in D, two D steps per G step,
# EMA generator for the samples.
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=130, help="generator steps")
ap.add_argument("--d-steps", type=int, default=2)
ap.add_argument("--batch", type=int, default=32)
ap.add_argument("--zdim", type=int, default=24)
ap.add_argument("--seed", type=int, default=1)
opt = ap.parse_args()

torch.manual_seed(opt.seed)
rng = np.random.default_rng(opt.seed)


def glyphs(n):
    """Bars and corners with soft edges, scaled to [-1, 1]."""
    out = np.zeros((n, 1, 16, 16), dtype=np.float32)
    for k in range(n):
        kind = rng.integers(3)
        y, x = rng.integers(2, 10, size=2)
        if kind in (0, 2):
            out[k, 0, y : y + 2, 2:14] = 1
        if kind in (1, 2):
            out[k, 0, 2:14, x : x + 2] = 1
    t = torch.from_numpy(out)
    t = F.avg_pool2d(F.pad(t, (1, 1, 1, 1)), 3, stride=1) * 0.5 + t * 0.5
    return t * 2 - 1


class Generator(nn.Module):
    def __init__(self, z, c=24):
        super().__init__()
        self.fc = nn.Linear(z, 2 * c * 16)
        self.c = c
        self.net = nn.Sequential(
            nn.BatchNorm2d(2 * c),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1, bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.ConvTranspose2d(c, c, 4, 2, 1, bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, 1, 3, 1, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(self.fc(z).view(-1, 2 * self.c, 4, 4))


class Discriminator(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.net = nn.Sequential(
            spectral_norm(nn.Conv2d(1, c, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            spectral_norm(nn.Conv2d(c, 2 * c, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            spectral_norm(nn.Linear(2 * c * 16, 1)),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def requires_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


@torch.no_grad()
def update_ema(avg, net, decay=0.98):
    for a, p in zip(avg.parameters(), net.parameters()):
        a.mul_(decay).add_(p, alpha=1 - decay)
    for a, b in zip(avg.buffers(), net.buffers()):
        a.copy_(b)


@torch.no_grad()
def nearest_distance(gen, ref, z):
    """Mean distance of a sample to the nearest real picture, and spread of the samples."""
    gen.eval()
    fake = gen(z).flatten(1)
    d = torch.cdist(fake, ref.flatten(1)).min(dim=1).values.mean().item()
    return d, fake.std(dim=0).mean().item()


real_data = glyphs(2000)
held_out = glyphs(400)
print("real spread", round(held_out.flatten(1).std(dim=0).mean().item(), 3))

G, D = Generator(opt.zdim), Discriminator()
G_avg = copy.deepcopy(G)
requires_grad(G_avg, False)
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.0, 0.9))
fixed_z = torch.randn(200, opt.zdim, generator=torch.Generator().manual_seed(0))


def real_batches():
    while True:
        order = torch.randperm(len(real_data))
        for chunk in order.split(opt.batch):
            if len(chunk) == opt.batch:
                yield real_data[chunk]


batches = real_batches()
G.train()
D.train()
for step in range(1, opt.steps + 1):
    # ---- discriminator
    requires_grad(D, True)
    for _ in range(opt.d_steps):
        real = next(batches)
        with torch.no_grad():
            fake = G(torch.randn(opt.batch, opt.zdim))
        d_real, d_fake = D(real), D(fake)
        loss_d = F.relu(1 - d_real).mean() + F.relu(1 + d_fake).mean()
        opt_d.zero_grad(set_to_none=True)
        loss_d.backward()
        opt_d.step()

    # ---- generator
    requires_grad(D, False)
    loss_g = -D(G(torch.randn(opt.batch, opt.zdim))).mean()
    opt_g.zero_grad(set_to_none=True)
    loss_g.backward()
    opt_g.step()
    update_ema(G_avg, G)

    if step % 30 == 0 or step == opt.steps:
        dist, spread = nearest_distance(G_avg, held_out, fixed_z)
        print(
            f"[{step:4d}/{opt.steps}] D {loss_d.item():.3f} (real {d_real.mean().item():+.2f} "
            f"fake {d_fake.mean().item():+.2f}) G {loss_g.item():+.3f} nearest {dist:.2f} spread {spread:.3f}"
        )

G_avg.eval()
with torch.no_grad():
    sample = G_avg(fixed_z[:1])[0, 0]
for row in sample[::2]:
    print("".join("#" if v > 0 else "." for v in row))
