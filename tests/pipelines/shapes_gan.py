# DCGAN on 16x16 pictures of discs, squares and crosses.
# follows the layout of the PyTorch tutorial, plus an averaged copy of G for sampling
import argparse
import copy

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200, help="generator updates")
parser.add_argument("--seed", type=int, default=999)
opt = parser.parse_args()
torch.manual_seed(opt.seed)

nz, ngf, ndf = 24, 16, 16
batch_size = 32
lr_d, lr_g = 2e-4, 4e-4
real_label, fake_label = 0.9, 0.0  # one-sided smoothing
ema_beta = 0.98


def render(n):
    """Pictures in [-1, 1]."""
    kind = torch.randint(3, (n, 1, 1))
    cx = 5 + 6 * torch.rand(n, 1, 1)
    cy = 5 + 6 * torch.rand(n, 1, 1)
    r = 2.5 + 2 * torch.rand(n, 1, 1)
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    dx, dy = (xx - cx).abs(), (yy - cy).abs()
    disc = r - (dx**2 + dy**2).sqrt()
    square = r - torch.maximum(dx, dy)
    cross = torch.minimum(r - torch.maximum(dx, dy), 1.2 - torch.minimum(dx, dy))
    level = torch.where(kind == 0, disc, torch.where(kind == 1, square, cross))
    return torch.tanh(2 * level).unsqueeze(1)


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 4),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ngf * 2),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(1, ndf, 4, 2, 1),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ndf * 2),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Dropout(0.2),
    nn.Conv2d(ndf * 2, 1, 4, 1, 0),
    nn.Flatten(0),
)
netG.apply(weights_init)
netD.apply(weights_init)
netG_ema = copy.deepcopy(netG).eval()
for p in netG_ema.parameters():
    p.requires_grad_(False)


@torch.no_grad()
def update_ema():
    for p_avg, p in zip(netG_ema.parameters(), netG.parameters()):
        p_avg.lerp_(p, 1 - ema_beta)
    for b_avg, b in zip(netG_ema.buffers(), netG.buffers()):
        b_avg.copy_(b)


@torch.no_grad()
def sliced_distance(a, b, n_proj=64):
    """Sliced Wasserstein distance between two sets of pictures of equal size."""
    g = torch.Generator().manual_seed(0)
    proj = torch.randn(a[0].numel(), n_proj, generator=g)
    proj = proj / proj.norm(dim=0)
    pa = (a.flatten(1) @ proj).sort(dim=0).values
    pb = (b.flatten(1) @ proj).sort(dim=0).values
    return (pa - pb).abs().mean().item()


pictures = render(2048)
held_out = render(512)
loader = DataLoader(
    TensorDataset(pictures), batch_size=batch_size, shuffle=True, drop_last=True
)

criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=lr_d, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=lr_g, betas=(0.5, 0.999))
fixed_noise = torch.randn(512, nz, 1, 1)

print(
    f"distance before training {sliced_distance(netG_ema(fixed_noise), held_out):.4f}, "
    f"between real sets {sliced_distance(pictures[:512], held_out):.4f}"
)

iters = 0
epoch = 0
while iters < opt.steps:
    for (real,) in loader:
        # (1) update D: real pictures up, generated pictures down
        netD.zero_grad(set_to_none=True)
        output = netD(real)
        errD_real = criterion(output, torch.full_like(output, real_label))
        errD_real.backward()
        D_x = output.detach().sigmoid().mean().item()

        noise = torch.randn(real.size(0), nz, 1, 1)
        fake = netG(noise)
        output = netD(fake.detach())
        errD_fake = criterion(output, torch.full_like(output, fake_label))
        errD_fake.backward()
        errD = errD_real.item() + errD_fake.item()
        optimizerD.step()

        # (2) update G: make D say real; D only passes the gradient on
        for p in netD.parameters():
            p.requires_grad_(False)
        netG.zero_grad(set_to_none=True)
        output = netD(fake)
        errG = criterion(output, torch.ones_like(output))
        errG.backward()
        optimizerG.step()
        for p in netD.parameters():
            p.requires_grad_(True)
        update_ema()

        iters += 1
        if iters % 25 == 0:
            D_G_z = output.detach().sigmoid().mean().item()
            print(
                f"[{epoch}][{iters}/{opt.steps}] Loss_D {errD:.4f} Loss_G {errG.item():.4f} "
                f"D(x) {D_x:.3f} D(G(z)) {D_G_z:.3f}"
            )
        if iters % 50 == 0:
            print(f"   distance {sliced_distance(netG_ema(fixed_noise), held_out):.4f}")
        if iters >= opt.steps:
            break
    epoch += 1

sample = netG_ema(fixed_noise[:1])[0, 0]
for row in sample:
    print("".join("#" if v > 0.3 else "+" if v > -0.3 else "." for v in row.tolist()))
