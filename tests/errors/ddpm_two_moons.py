"""Denoising diffusion on the two-moons toy distribution.

Samples are drawn with the averaged weights, as usual for diffusion models.
"""
import argparse
import copy
import math

import torch
import torch.nn as nn


def two_moons(n, gen):
    t = torch.rand(n, generator=gen) * math.pi
    upper = torch.rand(n, generator=gen) < 0.5
    x = torch.where(upper, torch.cos(t), 1 - torch.cos(t))
    y = torch.where(upper, torch.sin(t), 0.5 - torch.sin(t))
    pts = torch.stack([x - 0.5, y - 0.25], 1)
    return pts + 0.06 * torch.randn(n, 2, generator=gen)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        half = dim // 2
        self.register_buffer(
            "freq", torch.exp(-math.log(1000.0) * torch.arange(half) / half)
        )

    def forward(self, t):
        a = t.float()[:, None] * self.freq[None]
        return torch.cat([a.sin(), a.cos()], 1)


class Denoiser(nn.Module):
    def __init__(self, width=160, temb=32):
        super().__init__()
        self.temb = TimeEmbedding(temb)
        self.inp = nn.Linear(2 + temb, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.out = nn.Linear(width, 2)
        self.act = nn.SiLU()

    def forward(self, x, t):
        h = self.act(self.inp(torch.cat([x, self.temb(t)], 1)))
        for layer in self.hidden:
            h = h + self.act(layer(h))
        return self.out(h)


class Diffusion:
    def __init__(self, n_steps=60):
        self.T = n_steps
        self.beta = torch.linspace(1e-3, 0.12, n_steps)
        self.alpha = 1 - self.beta
        self.abar = torch.cumprod(self.alpha, 0)

    def noisy(self, x0, t, eps):
        a = self.abar[t][:, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * eps

    @torch.no_grad()
    def sample(self, net, n, gen):
        net.eval()
        x = torch.randn(n, 2, generator=gen)
        for i in reversed(range(self.T)):
            t = torch.full((n,), i)
            eps = net(x, t)
            mean = (x - self.beta[i] / (1 - self.abar[i]).sqrt() * eps) / self.alpha[
                i
            ].sqrt()
            z = torch.randn(n, 2, generator=gen) if i > 0 else 0.0
            x = mean + self.beta[i].sqrt() * z
        return x


class WeightAverage:
    def __init__(self, net, decay=0.98):
        self.net = copy.deepcopy(net).eval()
        for p in self.net.parameters():
            p.requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, net):
        d = self.decay
        for avg, p in zip(self.net.parameters(), net.parameters()):
            new = d * avg + (1 - d) * p
            if args.fixed:
                avg.copy_(new)
            avg = new


def energy_distance(a, b):
    ab = torch.cdist(a, b).mean()
    return (2 * ab - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


def main(args):
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    net = Denoiser()
    ema = WeightAverage(net)
    first = [p.clone() for p in ema.net.parameters()]
    diff = Diffusion()
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=1e-4)

    for step in range(args.steps):
        x0 = two_moons(args.batch, gen)
        t = torch.randint(0, diff.T, (args.batch,), generator=gen)
        eps = torch.randn(args.batch, 2, generator=gen)
        loss = (net(diff.noisy(x0, t, eps), t) - eps).pow(2).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        ema.update(net)
        if step % 60 == 0 or step == args.steps - 1:
            print(f"{step:5d} | loss {loss.item():.4f}")

    real = two_moons(1000, gen)
    fake = diff.sample(ema.net, 1000, gen)
    print(f"energy distance of samples to data: {energy_distance(real, fake):.4f}")

    if args.prove:
        moved = max(
            (a - b).abs().max().item() for a, b in zip(first, ema.net.parameters())
        )
        print("fault shows:", "yes" if moved == 0 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    main(args)
