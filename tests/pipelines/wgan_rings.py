"""Wasserstein GAN that learns eight blobs on a ring. As in the paper: the critic
takes three steps for each one of the generator, its weights are clipped, both are
trained with RMSprop, and the critic is frozen while the generator steps.

    python wgan_rings.py --steps 700
"""

import argparse
import math

import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=700, help="generator steps")
parser.add_argument("--n-critic", type=int, default=3)
parser.add_argument("--clip", type=float, default=0.1)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--nz", type=int, default=8)
parser.add_argument("--seed", type=int, default=11)
opt = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(opt.seed)


def real_batch(n):
    angle = torch.randint(0, 8, (n,)) * (2 * math.pi / 8)
    centres = torch.stack([angle.cos(), angle.sin()], dim=1) * 2.0
    return centres + 0.08 * torch.randn(n, 2)


def sliced_distance(a, b, directions):
    """Mean distance of the sorted projections of two clouds of equal size."""
    pa = (a @ directions).sort(dim=0).values
    pb = (b @ directions).sort(dim=0).values
    return (pa - pb).abs().mean().item()


netG = nn.Sequential(
    nn.Linear(opt.nz, 64),
    nn.ReLU(True),
    nn.Linear(64, 64),
    nn.ReLU(True),
    nn.Linear(64, 2),
)
netD = nn.Sequential(
    nn.Linear(2, 64),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Linear(64, 64),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Linear(64, 1, bias=False),
)


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.kaiming_normal_(m.weight, a=0.2)
        if m.bias is not None:
            nn.init.zeros_(m.bias)


netG.apply(weights_init)
netD.apply(weights_init)

optimizerD = torch.optim.RMSprop(netD.parameters(), lr=2e-3)
optimizerG = torch.optim.RMSprop(netG.parameters(), lr=1e-3)

fixed_noise = torch.randn(512, opt.nz)
fixed_real = real_batch(512)
theta = torch.linspace(0, math.pi, 16)
directions = torch.stack([theta.cos(), theta.sin()])

for step in range(opt.steps):
    # ---- critic ----
    for p in netD.parameters():
        p.requires_grad_(True)
    for _ in range(opt.n_critic):
        with torch.no_grad():
            fake = netG(torch.randn(opt.batch, opt.nz))
        errD_real = netD(real_batch(opt.batch)).mean()
        errD_fake = netD(fake).mean()
        errD = errD_fake - errD_real
        optimizerD.zero_grad()
        errD.backward()
        optimizerD.step()
        with torch.no_grad():
            for p in netD.parameters():
                p.clamp_(-opt.clip, opt.clip)

    # ---- generator ----
    for p in netD.parameters():
        p.requires_grad_(False)
    optimizerG.zero_grad()
    errG = -netD(netG(torch.randn(opt.batch, opt.nz))).mean()
    errG.backward()
    optimizerG.step()

    if step % 70 == 0 or step == opt.steps - 1:
        with torch.no_grad():
            swd = sliced_distance(netG(fixed_noise), fixed_real, directions)
        print(
            f"[{step}/{opt.steps}] loss_D {errD.item():.6f} "
            f"loss_G {errG.item():.6f} sliced distance {swd:.4f}",
            flush=True,
        )
