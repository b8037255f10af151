# Small DCGAN on made-up 16x16 glyphs (bars, crosses, rings). Course project, week 9.
import argparse
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--nz", type=int, default=24, help="size of the latent z vector")
parser.add_argument("--ngf", type=int, default=24)
parser.add_argument("--ndf", type=int, default=24)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

torch.manual_seed(999)


def glyphs(n):
    """n pictures of shape 1x16x16 in [-1, 1]"""
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    c = 6 + 4 * torch.rand(n, 2)
    dy = yy[None] - c[:, 0, None, None]
    dx = xx[None] - c[:, 1, None, None]
    r = (dx**2 + dy**2).sqrt()
    radius = 3 + 2 * torch.rand(n, 1, 1)
    ring = ((r - radius).abs() < 1).float()
    cross = (((dx.abs() < 1) | (dy.abs() < 1)) & (r < 6)).float()
    bar = ((dx.abs() < 1.5) & (dy.abs() < 6)).float()
    which = torch.randint(0, 3, (n, 1, 1))
    img = torch.where(which == 0, ring, torch.where(which == 1, cross, bar))
    return (img * 2 - 1).unsqueeze(1)


dataset = glyphs(2048)


def weights_init(m):
    name = m.__class__.__name__
    if name.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif name.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),  # 4x4
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),  # 8x8
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),  # 16x16
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
        )

    def forward(self, x):
        return self.main(x).view(-1)


netG = Generator(args.nz, args.ngf)
netG.apply(weights_init)
netD = Discriminator(args.ndf)
netD.apply(weights_init)

criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=4e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=4e-4, betas=(0.5, 0.999))
fixed_noise = torch.randn(64, args.nz, 1, 1)
real_label = torch.ones(args.batch)
fake_label = torch.zeros(args.batch)

mismatch = []
for it in range(args.steps):
    optimizerD.zero_grad()
    optimizerG.zero_grad()

    # (1) update D: maximize log(D(x)) + log(1 - D(G(z)))
    real = dataset[torch.randint(0, len(dataset), (args.batch,))]
    errD_real = criterion(netD(real), real_label)
    noise = torch.randn(args.batch, args.nz, 1, 1)
    fake = netG(noise)
    if args.fixed:
        fake = fake.detach()
    errD_fake = criterion(netD(fake), fake_label)
    errD = errD_real + errD_fake
    errD.backward()
    optimizerD.step()

    # (2) update G: maximize log(D(G(z)))
    noise = torch.randn(args.batch, args.nz, 1, 1)
    output = netD(netG(noise))
    errG = criterion(output, real_label)
    if args.prove:
        w = netG.main[0].weight
        wanted = torch.autograd.grad(errG, w, retain_graph=True)[0]
    errG.backward()
    if args.prove:
        mismatch.append(((w.grad - wanted).norm() / wanted.norm()).item())
    optimizerG.step()

    if it % 25 == 0 or it == args.steps - 1:
        print(
            "[%3d/%d] Loss_D: %.4f Loss_G: %.4f D(G(z)): %.3f"
            % (it, args.steps, errD.item(), errG.item(), output.sigmoid().mean().item())
        )

netG.eval()
with torch.no_grad():
    sample = netG(fixed_noise)
    gap = (sample.mean(0) - dataset.mean(0)).abs().mean()
print("mean picture gap %.4f" % gap.item())

if args.prove:
    print("fault shows:", "yes" if max(mismatch) > 1e-3 else "no")
