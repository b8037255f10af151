"""GAN that makes vertical wind profiles (speed at 16 heights)."""
import argparse

import torch
from torch import nn

LEVELS = 16
Z = 8


def profiles(n, gen):
    height = torch.linspace(10, 160, LEVELS)
    friction = 0.35 + 0.1 * torch.randn(n, 1, generator=gen)
    rough = torch.exp(torch.rand(n, 1, generator=gen) * 3 - 4)
    u = friction / 0.4 * torch.log(height / rough)
    jet = (torch.rand(n, 1, generator=gen) < 0.3).float()
    u = u + jet * 2.0 * torch.exp(-(((height - 90) / 30) ** 2))
    return (u + 0.1 * torch.randn(n, LEVELS, generator=gen) - 6.5) / 2.5


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(Z, 48),
            nn.ReLU(),
            nn.Linear(48, 48),
            nn.ReLU(),
            nn.Linear(48, LEVELS),
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(LEVELS, 48),
            nn.LeakyReLU(0.2),
            nn.Linear(48, 48),
            nn.LeakyReLU(0.2),
            nn.Linear(48, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def sliced_distance(a, b, gen, n_dirs=64):
    d = torch.randn(a.size(1), n_dirs, generator=gen)
    d = d / d.norm(dim=0)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


class Trainer:
    def __init__(self, args):
        self.args = args
        self.gen = torch.Generator().manual_seed(21)
        self.G, self.D = Generator(), Critic()
        self.opt_g = torch.optim.Adam(
            self.G.parameters(), lr=args.lr, betas=(0.5, 0.99)
        )
        self.opt_d = torch.optim.Adam(
            self.D.parameters(), lr=args.lr, betas=(0.5, 0.99)
        )
        self.bce = nn.BCEWithLogitsLoss()
        self.gaps = []

    def noise(self, n):
        return torch.randn(n, Z, generator=self.gen)

    def compare(self, loss):
        params = list(self.D.parameters())
        ref = torch.autograd.grad(loss, params, retain_graph=True)
        ref = torch.cat([g.flatten() for g in ref])
        loss.backward()
        now = torch.cat([p.grad.flatten() for p in params])
        self.gaps.append(((now - ref).norm() / ref.norm()).item())

    def step(self):
        n = self.args.batch
        real = profiles(n, self.gen)
        fake = self.G(self.noise(n))
        if self.args.fixed:
            self.opt_d.zero_grad()
        loss_d = self.bce(self.D(real), torch.ones(n)) + self.bce(
            self.D(fake.detach()), torch.zeros(n)
        )
        if self.args.prove:
            self.compare(loss_d)
        else:
            loss_d.backward()
        self.opt_d.step()
        if not self.args.fixed:
            self.opt_d.zero_grad()

        self.opt_g.zero_grad()
        loss_g = self.bce(self.D(fake), torch.ones(n))
        loss_g.backward()
        self.opt_g.step()
        return loss_d.item(), loss_g.item()

    @torch.no_grad()
    def evaluate(self):
        gen = torch.Generator().manual_seed(77)
        real = profiles(1000, gen)
        fake = self.G(torch.randn(1000, Z, generator=gen))
        return (
            sliced_distance(real, fake, gen),
            (real.std(0) - fake.std(0)).abs().mean().item(),
        )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(3)
    t = Trainer(args)
    for i in range(args.steps):
        ld, lg = t.step()
        if i % 100 == 0 or i == args.steps - 1:
            sw, sd = t.evaluate()
            print(
                f"iter {i:4d}  D {ld:.3f}  G {lg:.3f}  sliced W {sw:.4f}  spread gap {sd:.4f}"
            )
    if args.prove:
        print(
            f"critic gradient against its own loss: relative distance first {t.gaps[0]:.4f}, "
            f"second {t.gaps[1]:.4f}, mean {sum(t.gaps) / len(t.gaps):.4f}"
        )
        print("fault shows:", "yes" if max(t.gaps) > 1e-3 else "no")


if __name__ == "__main__":
    main()
