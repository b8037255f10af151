# Small DCGAN for 16x16 textures (company prototype, synthetic "fabric" pictures).
# hinge loss, spectral norm in D, one or more D updates per G update, averaged generator for samples
import argparse
import copy

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, TensorDataset


def fabric(n, size=16, seed=0):
    g = torch.Generator().manual_seed(seed)
    grid = torch.arange(size).float()
    freq = torch.randint(1, 3, (n, 2), generator=g).float()
    shift = 1.5 * torch.rand(n, 2, generator=g)
    a = torch.sin(6.283 * freq[:, :1] * grid / size + shift[:, :1])
    b = torch.sin(6.283 * freq[:, 1:] * grid / size + shift[:, 1:])
    img = 0.5 * (a[:, :, None] + b[:, None, :])
    tint = 0.6 + 0.4 * torch.rand(n, 3, 1, 1, generator=g)
    return (img[:, None] * tint).clamp(-1, 1)


class Generator(nn.Module):
    def __init__(self, z=24, c=16):
        super().__init__()
        self.z = z
        self.net = nn.Sequential(
            nn.ConvTranspose2d(z, 4 * c, 4, bias=False),
            nn.BatchNorm2d(4 * c),
            nn.ReLU(True),
            nn.ConvTranspose2d(4 * c, 2 * c, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * c),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * c, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z[:, :, None, None])

    def noise(self, n):
        return torch.randn(n, self.z)


class Discriminator(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        sn = spectral_norm
        self.net = nn.Sequential(
            sn(nn.Conv2d(3, c, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            sn(nn.Conv2d(c, 2 * c, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            sn(nn.Linear(2 * c * 16, 1)),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def weights_init(m):
    if isinstance(m, (nn.ConvTranspose2d,)):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def set_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


@torch.no_grad()
def update_average(avg, net, decay):
    for a, p in zip(avg.parameters(), net.parameters()):
        a.mul_(decay).add_(p, alpha=1 - decay)
    for a, b in zip(avg.buffers(), net.buffers()):
        a.copy_(b)


def spectrum(x):
    """Mean amplitude spectrum of the grey pictures, for a rough distance."""
    return torch.fft.rfft2(x.mean(1)).abs().mean(0) / x.shape[-1]


def distance(a, b):
    return ((a - b).norm() / b.norm()).item()


def infinite(loader):
    while True:
        for (x,) in loader:
            yield x


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=250, help="generator updates")
    p.add_argument("--n-critic", type=int, default=1)
    p.add_argument("--lr-g", type=float, default=2e-3)
    p.add_argument("--lr-d", type=float, default=2e-3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--seed", type=int, default=8)
    return p.parse_args()


def main():
    opt = parse_args()
    torch.manual_seed(opt.seed)

    real_loader = DataLoader(
        TensorDataset(fabric(1024)), batch_size=opt.batch, shuffle=True, drop_last=True
    )
    held_out = spectrum(fabric(256, seed=99))
    stream = infinite(real_loader)

    G, D = Generator(), Discriminator()
    G.apply(weights_init)
    G_avg = copy.deepcopy(G).eval()
    set_grad(G_avg, False)
    opt_g = torch.optim.Adam(G.parameters(), lr=opt.lr_g, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(D.parameters(), lr=opt.lr_d, betas=(0.5, 0.999))
    decay = torch.optim.lr_scheduler.LinearLR
    sched = [decay(o, 1.0, 0.2, total_iters=opt.steps) for o in (opt_g, opt_d)]
    fixed = G.noise(256)

    with torch.no_grad():
        print(
            f"spectrum distance before training {distance(spectrum(G_avg(fixed)), held_out):.4f}"
        )
    G.train(), D.train()
    for step in range(1, opt.steps + 1):
        # ---- discriminator
        set_grad(D, True)
        for _ in range(opt.n_critic):
            real = next(stream)
            with torch.no_grad():
                fake = G(G.noise(len(real)))
            d_real, d_fake = D(real), D(fake)
            loss_d = torch.relu(1 - d_real).mean() + torch.relu(1 + d_fake).mean()
            opt_d.zero_grad(set_to_none=True)
            loss_d.backward()
            opt_d.step()

        # ---- generator, D is only passed through
        set_grad(D, False)
        loss_g = -D(G(G.noise(opt.batch))).mean()
        opt_g.zero_grad(set_to_none=True)
        loss_g.backward()
        opt_g.step()
        for s in sched:
            s.step()
        update_average(G_avg, G, decay=min(0.99, step / (step + 10)))

        if step % opt.log_every == 0 or step == opt.steps:
            with torch.no_grad():
                dist = distance(spectrum(G_avg(fixed)), held_out)
            print(
                f"[{step}/{opt.steps}] D {loss_d.item():.3f} G {loss_g.item():.3f} "
                f"D(real) {d_real.mean().item():.2f} D(fake) {d_fake.mean().item():.2f} spectrum distance {dist:.4f}"
            )


if __name__ == "__main__":
    main()
