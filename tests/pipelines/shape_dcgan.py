# DCGAN on 16x16 blob pictures, hinge loss, EMA of the generator.
# Two critic steps per generator step.

import argparse
import copy
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import spectral_norm
from torch.utils.data import DataLoader, TensorDataset

Z_DIM = 24


def blobs(n, generator):
    """one or two soft blobs on black, range [-1, 1]"""
    g = torch.linspace(-1, 1, 16)
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    centre = torch.rand(n, 2, 2, generator=generator) * 1.2 - 0.6
    scale = torch.rand(n, 2, generator=generator) * 0.15 + 0.15
    use = torch.ones(n, 2)
    use[:, 1] = (torch.rand(n, generator=generator) < 0.5).float()
    d = (yy - centre[..., 0, None, None]) ** 2 + (xx - centre[..., 1, None, None]) ** 2
    img = (
        use[..., None, None] * torch.exp(-d / (2 * scale[..., None, None] ** 2))
    ).amax(1)
    return (img * 2 - 1).unsqueeze(1)


def build_generator():
    return nn.Sequential(
        nn.Linear(Z_DIM, 48 * 4 * 4, bias=False),
        nn.BatchNorm1d(48 * 4 * 4),
        nn.ReLU(True),
        nn.Unflatten(1, (48, 4, 4)),
        nn.ConvTranspose2d(48, 24, 4, 2, 1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(True),
        nn.ConvTranspose2d(24, 1, 4, 2, 1),
        nn.Tanh(),
    )


def build_discriminator():
    return nn.Sequential(
        spectral_norm(nn.Conv2d(1, 24, 4, 2, 1)),
        nn.LeakyReLU(0.2, True),
        spectral_norm(nn.Conv2d(24, 48, 4, 2, 1)),
        nn.LeakyReLU(0.2, True),
        nn.Flatten(),
        spectral_norm(nn.Linear(48 * 4 * 4, 1)),
    )


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
        # spectral-normed layers keep their parameter under weight_orig
        w = m.weight_orig if hasattr(m, "weight_orig") else m.weight
        nn.init.normal_(w.data, 0.0, 0.02)
        if m.bias is not None:
            nn.init.zeros_(m.bias.data)


def requires_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


@torch.no_grad()
def accumulate(ema, net, decay):
    for pe, p in zip(ema.parameters(), net.parameters()):
        pe.mul_(decay).add_(p, alpha=1 - decay)
    for be, b in zip(ema.buffers(), net.buffers()):
        be.copy_(b)


@torch.no_grad()
def sample(net, z):
    was = net.training
    net.eval()
    out = net(z)
    net.train(was)
    return out


def moments_distance(a, b):
    """difference of pixel mean and pixel std maps, cheap stand-in for FID"""
    return (F.mse_loss(a.mean(0), b.mean(0)) + F.mse_loss(a.std(0), b.std(0))).item()


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120, help="generator steps")
    parser.add_argument("--n-critic", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr-g", type=float, default=1e-3)
    parser.add_argument("--lr-d", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def show(img):
    for row in img[::2]:
        print("".join(" .:-=+*#%@"[int((v.item() + 1) / 2 * 9.99)] for v in row))


def main():
    opt = parse_args()
    torch.manual_seed(opt.seed)

    data_gen = torch.Generator().manual_seed(1)
    real_train = blobs(3000, data_gen)
    real_test = blobs(1000, data_gen)
    loader = DataLoader(
        TensorDataset(real_train), batch_size=opt.batch, shuffle=True, drop_last=True
    )

    def endless():
        for _ in itertools.count():
            for (x,) in loader:
                yield x

    reals = endless()

    netG = build_generator()
    netD = build_discriminator()
    netG.apply(weights_init)
    netD.apply(weights_init)
    ema = copy.deepcopy(netG).eval()
    requires_grad(ema, False)

    optG = torch.optim.Adam(netG.parameters(), lr=opt.lr_g, betas=(0.0, 0.99))
    optD = torch.optim.Adam(netD.parameters(), lr=opt.lr_d, betas=(0.0, 0.99))
    fixed_z = torch.randn(500, Z_DIM)
    print("start distance %.4f" % moments_distance(sample(netG, fixed_z), real_test))

    for step in range(1, opt.steps + 1):
        # ---- critic
        requires_grad(netD, True)
        for _ in range(opt.n_critic):
            x = next(reals)
            with torch.no_grad():
                fake = netG(torch.randn(opt.batch, Z_DIM))
            d_real, d_fake = netD(x), netD(fake)
            loss_d = F.relu(1 - d_real).mean() + F.relu(1 + d_fake).mean()
            optD.zero_grad()
            loss_d.backward()
            optD.step()

        # ---- generator
        requires_grad(netD, False)  # saves computing the critic's weight gradients
        loss_g = -netD(netG(torch.randn(opt.batch, Z_DIM))).mean()
        optG.zero_grad()
        loss_g.backward()
        optG.step()
        accumulate(ema, netG, decay=0.0 if step < 20 else 0.95)

        if step % 30 == 0 or step == opt.steps:
            print(
                f"step {step:4d} D {loss_d.item():.3f} G {loss_g.item():+.3f} "
                f"D(x) {d_real.mean().item():+.2f} D(G(z)) {d_fake.mean().item():+.2f} "
                f"dist {moments_distance(sample(netG, fixed_z), real_test):.4f} "
                f"ema {moments_distance(sample(ema, fixed_z), real_test):.4f}"
            )

    show(sample(ema, fixed_z[:1])[0, 0])


if __name__ == "__main__":
    main()
