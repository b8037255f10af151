# DCGAN for 16x16 glyph pictures (L, T, plus, box). Course project, part 2.
import argparse

import torch
import torch.nn as nn

Z = 24
BATCH = 64


def glyphs(n, seed):
    """White glyphs on black, values in [-1, 1]."""
    g = torch.Generator().manual_seed(seed)
    imgs = -torch.ones(n, 1, 16, 16)
    kind = torch.randint(0, 4, (n,), generator=g)
    pos = torch.randint(2, 6, (n, 2), generator=g)
    thick = torch.randint(2, 4, (n,), generator=g)
    for i in range(n):
        r, c = int(pos[i, 0]), int(pos[i, 1])
        t, s = int(thick[i]), 8
        im = imgs[i, 0]
        if kind[i] == 0:  # L
            im[r : r + s, c : c + t] = 1
            im[r + s - t : r + s, c : c + s] = 1
        elif kind[i] == 1:  # T
            im[r : r + t, c : c + s] = 1
            im[r : r + s, c + 3 : c + 3 + t] = 1
        elif kind[i] == 2:  # plus
            im[r + 3 : r + 3 + t, c : c + s] = 1
            im[r : r + s, c + 3 : c + 3 + t] = 1
        else:  # box
            im[r : r + s, c : c + s] = 1
            im[r + t : r + s - t, c + t : c + s - t] = -1
    return (imgs + 0.05 * torch.randn(imgs.shape, generator=g)).clamp(-1, 1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(Z, 48, 4, 1, 0, bias=False),
            nn.BatchNorm2d(48),
            nn.ReLU(True),
            nn.ConvTranspose2d(48, 24, 4, 2, 1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(True),
            nn.ConvTranspose2d(24, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 24, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(24, 48, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(48 * 4 * 4, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.04)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def grad_norm(model):
    return (
        sum(
            p.grad.pow(2).sum().item() for p in model.parameters() if p.grad is not None
        )
        ** 0.5
    )


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps",
        type=int,
        default=240,
        help="optimizer steps, half of them for each network",
    )
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    return ap.parse_args()


def train(netG, netD, data, args):
    """Returns the gradient norms found in G at the beginning of its own steps."""
    optG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=4e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    left_in_g = []
    iters = max(1, args.steps // 2)
    loader = torch.utils.data.DataLoader(
        data, batch_size=BATCH, shuffle=True, drop_last=True
    )
    it = 0
    while it < iters:
        for real in loader:
            b = real.size(0)
            fake = netG(torch.randn(b, Z))

            # (1) discriminator
            optG.zero_grad()
            optD.zero_grad()
            out_real = netD(real)
            fake_d, keep = fake, True
            if args.fixed:
                fake_d, keep = fake.detach(), False
            out_fake = netD(fake_d)
            lossD = criterion(out_real, torch.full((b,), 0.9)) + criterion(
                out_fake, torch.zeros(b)
            )
            lossD.backward(retain_graph=keep)
            optD.step()

            # (2) generator
            left_in_g.append(grad_norm(netG))
            out = netD(fake)
            lossG = criterion(out, torch.ones(b))
            lossG.backward()
            optG.step()

            it += 1
            if it % 20 == 0:
                print(
                    f"[{it}/{iters}] D {lossD.item():.4f} G {lossG.item():.4f} "
                    f"D(x) {out_real.sigmoid().mean().item():.3f} D(G(z)) {out_fake.sigmoid().mean().item():.3f}"
                )
            if it >= iters:
                break
    return left_in_g


def sample(netG, noise, data):
    netG.eval()
    with torch.no_grad():
        samples = netG(noise)
    # mean distance of the samples to the nearest training picture
    dist = torch.cdist(samples.flatten(1), data.flatten(1)).min(1).values.mean().item()
    print(
        f"distance of samples to the nearest real picture: {dist:.3f}, spread {samples.std(0).mean().item():.3f}"
    )


def main():
    args = parse_args()
    torch.manual_seed(99)

    data = glyphs(1024, 5)
    netG, netD = Generator().apply(weights_init), Discriminator().apply(weights_init)
    fixed_noise = torch.randn(64, Z)
    left_in_g = train(netG, netD, data, args)
    sample(netG, fixed_noise, data)

    if args.prove:
        mean_left = sum(left_in_g) / len(left_in_g)
        print(
            f"gradient norm in G when its own step begins: {mean_left:.4f} on average"
        )
        print("fault shows:", "yes" if mean_left > 0 else "no")


if __name__ == "__main__":
    main()
