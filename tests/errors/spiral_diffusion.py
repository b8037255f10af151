"""DDPM on a two-arm spiral in the plane."""
import argparse
import math

import torch
import torch.nn as nn


def spiral(n, gen):
    r = torch.sqrt(torch.rand(n, generator=gen)) * 0.9 + 0.1
    arm = torch.randint(0, 2, (n,), generator=gen) * math.pi
    theta = 3.2 * math.pi * r / 2 + arm
    pts = torch.stack([r * torch.cos(theta), r * torch.sin(theta)], 1)
    return 1.6 * pts + 0.02 * torch.randn(n, 2, generator=gen)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer(
            "freq", torch.exp(torch.linspace(0, math.log(30.0), dim // 2))
        )

    def forward(self, t):
        a = t.unsqueeze(1) * self.freq
        return torch.cat([a.sin(), a.cos()], 1)


class NoiseNet(nn.Module):
    def __init__(self, T, hidden=128, dim=32):
        super().__init__()
        self.T = T
        self.time = TimeEmbedding(dim)
        self.inp = nn.Linear(2 + dim, hidden)
        self.mid = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(2)])
        self.out = nn.Linear(hidden, 2)

    def forward(self, x, t):
        h = torch.cat([x, self.time(t.float() / self.T)], 1)
        h = nn.functional.silu(self.inp(h))
        for layer in self.mid:
            h = h + nn.functional.silu(layer(h))
        return self.out(h)


class Diffusion:
    def __init__(self, T, fixed=False):
        self.T = T
        self.betas = torch.linspace(2e-3, 0.16, T)
        self.alphas = 1.0 - self.betas
        self.alphas_bar = torch.cumprod(self.alphas, dim=0)
        self.keep = self.alphas_bar if fixed else self.alphas

    def q_sample(self, x0, t, noise):
        a = self.keep[t].unsqueeze(1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def loss(self, model, x0, gen):
        t = torch.randint(0, self.T, (len(x0),), generator=gen)
        noise = torch.randn(x0.shape, generator=gen)
        return (model(self.q_sample(x0, t, noise), t) - noise).pow(2).mean()

    @torch.no_grad()
    def sample(self, model, n, gen):
        x = torch.randn(n, 2, generator=gen)
        for k in reversed(range(self.T)):
            t = torch.full((n,), k)
            eps = model(x, t)
            mean = (
                x - self.betas[k] / (1 - self.alphas_bar[k]).sqrt() * eps
            ) / self.alphas[k].sqrt()
            if k > 0:
                var = (
                    self.betas[k]
                    * (1 - self.alphas_bar[k - 1])
                    / (1 - self.alphas_bar[k])
                )
                x = mean + var.sqrt() * torch.randn(n, 2, generator=gen)
            else:
                x = mean
        return x


def energy_distance(a, b):
    def off(u):
        return torch.cdist(u, u).sum() / (len(u) * (len(u) - 1))

    return (2 * torch.cdist(a, b).mean() - off(a) - off(b)).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1200)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--timesteps", type=int, default=60)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--seed", type=int, default=70)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed + 1)
    diffusion = Diffusion(args.timesteps, fixed=args.fixed)
    model = NoiseNet(args.timesteps)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)

    window = []
    for step in range(args.steps):
        x0 = spiral(args.batch, gen)
        loss = diffusion.loss(model, x0, gen)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        sched.step()
        window.append(loss.item())
        if (step + 1) % 200 == 0:
            print(f"step {step + 1:5d}  eps loss {sum(window) / len(window):.4f}")
            window = []

    eval_gen = torch.Generator().manual_seed(5)
    drawn = diffusion.sample(model, 800, eval_gen)
    real = spiral(800, eval_gen)
    nearest = torch.cdist(real, drawn).min(1).values.mean().item()
    print(
        f"energy distance {energy_distance(drawn, real):.4f}, mean distance of the data to the samples {nearest:.4f}"
    )

    if args.prove:
        x0 = spiral(4000, eval_gen)
        noise = torch.randn(x0.shape, generator=eval_gen)
        last = torch.full((len(x0),), args.timesteps - 1)
        xT = diffusion.q_sample(x0, last, noise)
        slope = ((xT * x0).sum() / (x0 * x0).sum()).item()
        expected = torch.prod(1 - diffusion.betas).sqrt().item()
        print(
            f"share of the data left at the last noise level: {slope:.4f}, by the schedule {expected:.4f}"
        )
        print("fault shows:", "yes" if abs(slope - expected) > 0.1 else "no")


if __name__ == "__main__":
    main()
