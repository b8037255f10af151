"""
GAN on 16x16 stripe textures. DCGAN layers with spectral norm in D, hinge loss,
two optimizers, averaged generator for the samples.
"""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import spectral_norm

opt = argparse.ArgumentParser()
opt.add_argument("--steps", type=int, default=150, help="generator updates")
opt.add_argument(
    "--d-iters", type=int, default=2, help="discriminator updates per generator update"
)
opt.add_argument("--batch-size", type=int, default=32)
opt.add_argument("--nz", type=int, default=16)
opt.add_argument("--lr-g", type=float, default=1e-3)
opt.add_argument("--lr-d", type=float, default=1e-3)
opt.add_argument("--seed", type=int, default=99)
opt = opt.parse_args()
torch.manual_seed(opt.seed)


def real_textures(n):
    """stripes with random direction and phase, values in [-1, 1]"""
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    angle = torch.rand(n, 1, 1) * math.pi
    phase = torch.rand(n, 1, 1) * 2 * math.pi
    freq = 0.9 + 0.2 * torch.rand(n, 1, 1)
    s = torch.sin(freq * (xx * angle.cos() + yy * angle.sin()) + phase)
    return (0.9 * s + 0.05 * torch.randn(n, 16, 16)).clamp(-1, 1).unsqueeze(1)


class Generator(nn.Module):
    def __init__(self, nz, c=32):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, 2 * c, 4, 1, 0, bias=False),
            nn.BatchNorm2d(2 * c),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1, bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(True),
            nn.ConvTranspose2d(c, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.main = nn.Sequential(
            spectral_norm(nn.Conv2d(1, c, 4, 2, 1)),
            nn.LeakyReLU(0.2, True),
            spectral_norm(nn.Conv2d(c, 2 * c, 4, 2, 1)),
            nn.LeakyReLU(0.2, True),
            nn.Flatten(),
            spectral_norm(nn.Linear(2 * c * 16, 1)),
        )

    def forward(self, x):
        return self.main(x).squeeze(1)


def weights_init(m):
    if isinstance(m, nn.ConvTranspose2d):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def requires_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


@torch.no_grad()
def update_average(avg, net, beta):
    for a, p in zip(avg.parameters(), net.parameters()):
        a.lerp_(p, 1 - beta)
    for a, b in zip(avg.buffers(), net.buffers()):
        a.copy_(b)


@torch.no_grad()
def spectrum_distance(net, real, z):
    """distance of the mean power spectra, lower is better"""
    net.eval()
    fake = net(z)
    ps = [torch.fft.fft2(t.squeeze(1)).abs().pow(2).mean(0) for t in (real, fake)]
    ps = [torch.log1p(p) for p in ps]
    return (ps[0] - ps[1]).abs().mean().item()


data = real_textures(2000)
held_out = real_textures(256)
fixed_z = torch.randn(256, opt.nz)

netG = Generator(opt.nz)
netG.apply(weights_init)
netD = Discriminator()
avgG = copy.deepcopy(netG)
requires_grad(avgG, False)
optG = torch.optim.Adam(netG.parameters(), lr=opt.lr_g, betas=(0.0, 0.9))
optD = torch.optim.Adam(netD.parameters(), lr=opt.lr_d, betas=(0.0, 0.9))


def real_batches():
    while True:
        for idx in torch.randperm(len(data)).split(opt.batch_size):
            if len(idx) == opt.batch_size:
                yield data[idx]


loader = real_batches()
print(
    "spectrum distance at the start %.3f" % spectrum_distance(avgG, held_out, fixed_z)
)
sumD = sumG = 0.0
for it in range(1, opt.steps + 1):
    netG.train()
    netD.train()
    # ---- discriminator
    requires_grad(netD, True)
    for _ in range(opt.d_iters):
        real = next(loader)
        with torch.no_grad():
            fake = netG(torch.randn(opt.batch_size, opt.nz))
        lossD = F.relu(1 - netD(real)).mean() + F.relu(1 + netD(fake)).mean()
        optD.zero_grad()
        lossD.backward()
        optD.step()
        sumD += lossD.item() / opt.d_iters
    # ---- generator
    requires_grad(netD, False)
    lossG = -netD(netG(torch.randn(opt.batch_size, opt.nz))).mean()
    optG.zero_grad()
    lossG.backward()
    optG.step()
    sumG += lossG.item()
    update_average(avgG, netG, 0.95)
    if it % 30 == 0 or it == opt.steps:
        n = 30 if it % 30 == 0 else it % 30
        print(
            "[%d/%d] lossD %.3f lossG %.3f spectrum distance %.3f"
            % (
                it,
                opt.steps,
                sumD / n,
                sumG / n,
                spectrum_distance(avgG, held_out, fixed_z),
            )
        )
        sumD = sumG = 0.0
