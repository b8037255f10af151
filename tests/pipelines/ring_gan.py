"""Conditional DCGAN on 16x16 blob pictures, non-saturating loss, TTUR.

Two classes of pictures: rings and discs.
"""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

NZ, NCLS, SIZE = 16, 2, 16


def real_pictures(n):
    lin = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(lin, lin, indexing="ij")
    c = torch.rand(n, 2) * 0.6 - 0.3
    r = torch.rand(n, 1, 1) * 0.25 + 0.4
    label = torch.randint(0, NCLS, (n,))
    d = ((xx - c[:, 0, None, None]) ** 2 + (yy - c[:, 1, None, None]) ** 2).sqrt()
    ring = torch.exp(-(((d - r) / 0.12) ** 2))
    disc = torch.sigmoid((r - d) * 14)
    img = torch.where(label.view(-1, 1, 1) == 0, ring, disc) * 2 - 1
    return img.unsqueeze(1), label


def weights_init(m):
    name = m.__class__.__name__
    if "Conv" in name:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, ngf=24):
        super().__init__()
        self.emb = nn.Embedding(NCLS, 8)
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NZ + 8, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),  # 4
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),  # 8
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1),
            nn.Tanh(),
        )  # 16

    def forward(self, z, y):
        h = torch.cat([z, self.emb(y)], 1)
        return self.main(h[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, ndf=24):
        super().__init__()
        sn = nn.utils.parametrizations.spectral_norm
        self.features = nn.Sequential(
            sn(nn.Conv2d(1, ndf, 4, 2, 1)),
            nn.LeakyReLU(0.2, True),  # 8
            sn(nn.Conv2d(ndf, ndf * 2, 4, 2, 1)),
            nn.LeakyReLU(0.2, True),  # 4
            nn.Flatten(),
        )
        self.head = sn(nn.Linear(ndf * 2 * 16, 1))
        self.proj = nn.Embedding(NCLS, ndf * 2 * 16)
        nn.init.normal_(self.proj.weight, 0, 0.02)

    def forward(self, x, y):
        h = self.features(x)
        return self.head(h).squeeze(1) + (self.proj(y) * h).mean(1)


def d_loss_fn(real_logit, fake_logit):
    return F.softplus(-real_logit).mean() + F.softplus(fake_logit).mean()


def g_loss_fn(fake_logit):
    return F.softplus(-fake_logit).mean()


def moment_gap(fake, real):
    """cheap quality number: distance of the mean pictures and of the per-pixel stds"""
    return (
        (fake.mean(0) - real.mean(0)).abs().mean()
        + (fake.std(0) - real.std(0)).abs().mean()
    ).item()


def evaluate(netG, fixed_z, fixed_y, ref, ref_y):
    netG.eval()
    with torch.no_grad():
        fake = netG(fixed_z, fixed_y)
    netG.train()
    return [moment_gap(fake[fixed_y == c], ref[ref_y == c]) for c in range(NCLS)]


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--lrG", type=float, default=1e-3)
    ap.add_argument("--lrD", type=float, default=2e-3)
    ap.add_argument("--manualSeed", type=int, default=999)
    return ap.parse_args()


def main():
    opt = parse_args()
    print("Random Seed:", opt.manualSeed)
    random.seed(opt.manualSeed)
    torch.manual_seed(opt.manualSeed)
    data, labels = real_pictures(2000)
    ref, ref_y = real_pictures(400)
    netG, netD = Generator(), Discriminator()
    netG.apply(weights_init)
    optD = torch.optim.Adam(netD.parameters(), lr=opt.lrD, betas=(0.5, 0.999))
    optG = torch.optim.Adam(netG.parameters(), lr=opt.lrG, betas=(0.5, 0.999))
    fixed_z = torch.randn(200, NZ)
    fixed_y = torch.arange(200) % NCLS

    gap = evaluate(netG, fixed_z, fixed_y, ref, ref_y)
    print("gap before training", ["%.3f" % v for v in gap])

    step, epoch = 0, 0
    while step < opt.steps:
        order = torch.randperm(len(data))
        for start in range(0, len(order) - opt.batch + 1, opt.batch):
            idx = order[start : start + opt.batch]
            real, y = data[idx], labels[idx]

            # (1) update D: real batch and detached fake batch
            optD.zero_grad()
            z = torch.randn(opt.batch, NZ)
            fake = netG(z, y)
            lossD = d_loss_fn(netD(real, y), netD(fake.detach(), y))
            lossD.backward()
            optD.step()

            # (2) update G through a frozen D
            for p in netD.parameters():
                p.requires_grad_(False)
            optG.zero_grad()
            fake_y = torch.randint(0, NCLS, (opt.batch,))
            lossG = g_loss_fn(netD(netG(torch.randn(opt.batch, NZ), fake_y), fake_y))
            lossG.backward()
            optG.step()
            for p in netD.parameters():
                p.requires_grad_(True)

            step += 1
            if step % 50 == 0:
                gap = evaluate(netG, fixed_z, fixed_y, ref, ref_y)
                print(
                    f"[{epoch}][{step}/{opt.steps}] Loss_D {lossD.item():.4f} Loss_G {lossG.item():.4f} "
                    f"gap ring {gap[0]:.3f} disc {gap[1]:.3f}"
                )
            if step >= opt.steps:
                break
        epoch += 1

    gap = evaluate(netG, fixed_z, fixed_y, ref, ref_y)
    print("gap after training", ["%.3f" % v for v in gap])


if __name__ == "__main__":
    main()
