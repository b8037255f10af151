# DCGAN-style generator for woven textile swatches (16x16, grey)
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=160)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--z", type=int, default=16)
parser.add_argument("--lr_g", type=float, default=1e-3)
parser.add_argument("--lr_d", type=float, default=1e-3)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")


def swatches(n, g):
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    phase = torch.rand(n, 2, 1, 1, generator=g) * 6.283
    freq = 0.8 + 0.8 * torch.rand(n, 2, 1, 1, generator=g)
    warp = torch.sin(freq[:, 0] * xx + phase[:, 0])
    weft = torch.sin(freq[:, 1] * yy + phase[:, 1])
    img = 0.45 * warp + 0.45 * weft + 0.05 * torch.randn(n, 16, 16, generator=g)
    return img.clamp(-1, 1).unsqueeze(1)


class Generator(nn.Module):
    def __init__(self, z, c=24):
        super().__init__()
        self.c = c
        self.fc = nn.Linear(z, 2 * c * 16)
        self.up1 = nn.ConvTranspose2d(2 * c, c, 4, 2, 1)
        self.up2 = nn.ConvTranspose2d(c, 1, 4, 2, 1)
        self.bn0 = nn.BatchNorm2d(2 * c)
        self.bn1 = nn.BatchNorm2d(c)

    def forward(self, z):
        h = F.relu(self.bn0(self.fc(z).view(-1, 2 * self.c, 4, 4)))
        h = F.relu(self.bn1(self.up1(h)))
        return torch.tanh(self.up2(h))


class Discriminator(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, c, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(c, 2 * c, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * c * 16, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def spectrum(x):
    """mean log power spectrum, used as a crude quality measure"""
    return torch.fft.rfft2(x[:, 0]).abs().add(1e-3).log().mean(0)


# size: the whole run in one place, read from top to bottom
def main():
    args = parser.parse_args()
    torch.manual_seed(31)
    g = torch.Generator().manual_seed(31)
    data = swatches(1500, g)
    gen, dis = Generator(args.z), Discriminator()
    opt_g = torch.optim.Adam(gen.parameters(), lr=args.lr_g, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(dis.parameters(), lr=args.lr_d, betas=(0.5, 0.999))
    real_label, fake_label = torch.ones(args.batch), torch.zeros(args.batch)
    bce = F.binary_cross_entropy_with_logits
    off = []

    for step in range(args.steps):
        real = data[torch.randint(len(data), (args.batch,), generator=g)]
        z = torch.randn(args.batch, args.z, generator=g)
        opt_g.zero_grad()
        opt_d.zero_grad()

        # generator
        fake = gen(z)
        loss_g = bce(dis(fake), real_label)
        loss_g.backward()
        opt_g.step()

        # discriminator
        if args.fixed:
            opt_d.zero_grad()
        score_r, score_f = dis(real), dis(fake.detach())
        loss_d = 0.5 * (bce(score_r, real_label) + bce(score_f, fake_label))
        if args.prove and step % 8 == 0:
            want = torch.autograd.grad(
                loss_d, list(dis.parameters()), retain_graph=True
            )
        loss_d.backward()
        if args.prove and step % 8 == 0:
            have = torch.cat([p.grad.flatten() for p in dis.parameters()])
            want = torch.cat([w.flatten() for w in want])
            off.append(((have - want).norm() / want.norm()).item())
        opt_d.step()

        if step % 20 == 0 or step == args.steps - 1:
            print(
                "%4d | D %.3f | G %.3f | D(x) %.2f | D(G(z)) %.2f"
                % (
                    step,
                    loss_d.item(),
                    loss_g.item(),
                    score_r.sigmoid().mean().item(),
                    score_f.sigmoid().mean().item(),
                )
            )

    gen.eval()
    with torch.no_grad():
        sample = gen(torch.randn(400, args.z, generator=g))
    gap = (spectrum(sample) - spectrum(data)).abs().mean().item()
    print("spectrum distance of 400 samples to the data: %.3f" % gap)
    print(
        "pixel std: samples %.3f, data %.3f" % (sample.std().item(), data.std().item())
    )

    if args.prove:
        print("relative distance of D's gradient to that of its loss: %.4f" % max(off))
        print("fault shows: %s" % ("yes" if max(off) > 1e-3 else "no"))


if __name__ == "__main__":
    main()
