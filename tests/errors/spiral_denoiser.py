"""Minimal DDPM on 2-D points (two spirals). Samples are drawn with the averaged weights."""
import argparse
import copy
import math

import torch
import torch.nn as nn


def spirals(n, gen):
    t = 0.5 + 2.6 * torch.rand(n, generator=gen)
    side = (torch.rand(n, generator=gen) < 0.5).float() * math.pi
    x = torch.stack([t * torch.cos(2 * t + side), t * torch.sin(2 * t + side)], 1) / 2.0
    return x + 0.04 * torch.randn(n, 2, generator=gen)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer(
            "freq", torch.exp(torch.linspace(0, math.log(200.0), dim // 2))
        )

    def forward(self, t):
        a = t[:, None] * self.freq
        return torch.cat([a.sin(), a.cos()], dim=1)


class Denoiser(nn.Module):
    def __init__(self, width=96, tdim=32):
        super().__init__()
        self.time = nn.Sequential(
            TimeEmbedding(tdim), nn.Linear(tdim, width), nn.SiLU()
        )
        self.inp = nn.Linear(2, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        temb = self.time(t)
        h = self.inp(x)
        for layer, norm in zip(self.layers, self.norms):
            h = h + nn.functional.silu(layer(norm(h) + temb))
        return self.out(h)


class Diffusion:
    def __init__(self, T=60):
        self.T = T
        beta = torch.linspace(1e-4, 0.12, T)
        self.beta, self.alpha = beta, 1 - beta
        self.abar = torch.cumprod(self.alpha, 0)

    def loss(self, model, x0):
        t = torch.randint(0, self.T, (len(x0),))
        eps = torch.randn_like(x0)
        a = self.abar[t][:, None]
        return (
            (model(a.sqrt() * x0 + (1 - a).sqrt() * eps, t / self.T) - eps)
            .pow(2)
            .mean()
        )

    @torch.no_grad()
    def sample(self, model, n, gen):
        x = torch.randn(n, 2, generator=gen)
        for i in reversed(range(self.T)):
            t = torch.full((n,), i / self.T)
            x = (
                x - self.beta[i] / (1 - self.abar[i]).sqrt() * model(x, t)
            ) / self.alpha[i].sqrt()
            if i > 0:
                x = x + self.beta[i].sqrt() * torch.randn(n, 2, generator=gen)
        return x


class EMA:
    """Exponential moving average of the weights."""

    def __init__(self, model, decay=0.98, fixed=False):
        self.decay = decay
        self.shadow = model
        if fixed:
            self.shadow = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.copy_(self.decay * s + (1 - self.decay) * p)


def chamfer(a, b):
    d = torch.cdist(a, b)
    return (d.min(1).values.mean() + d.min(0).values.mean()).item() / 2


def train(args):
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    data = spirals(4000, gen)
    model = Denoiser()
    ema = EMA(model, fixed=args.fixed)
    diffusion = Diffusion()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    running = 0.0
    for step in range(1, args.steps + 1):
        x0 = data[torch.randint(0, len(data), (256,))]
        loss = diffusion.loss(model, x0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        running += loss.item()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {running / 50:.4f}")
            running = 0.0
    return model, ema, diffusion, data


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--seed", type=int, default=15)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    model, ema, diffusion, data = train(args)

    gen = torch.Generator().manual_seed(1000)
    samples = diffusion.sample(ema.shadow.eval(), 800, gen)
    print(
        f"chamfer distance of the samples to the data: {chamfer(samples, data[:800]):.4f}"
    )

    if args.prove:
        gap = max(
            (a - b).abs().max().item()
            for a, b in zip(ema.shadow.parameters(), model.parameters())
        )
        print(f"largest difference between averaged and current weights: {gap:.6f}")
        print("fault shows:", "yes" if gap == 0 else "no")


if __name__ == "__main__":
    main()
