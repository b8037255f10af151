"""Denoising diffusion of heartbeats (conv1d): v-prediction, cosine schedule, min-SNR weights.

The averaged weights follow the trained ones from the first step with a warmed-up decay, and
only they are validated and sampled from (DDIM). The label is dropped at times for guidance.
"""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH, KINDS, TIMES = 64, 3, 200


def heartbeats(n, gen):
    kind = torch.randint(0, KINDS, (n,), generator=gen)
    t = torch.linspace(0, 1, LENGTH)
    at = 0.4 + 0.1 * torch.rand(n, 1, generator=gen)
    width = 0.02 + 0.015 * kind[:, None]
    height = 1.0 + 0.3 * torch.randn(n, 1, generator=gen)
    wave = height * torch.exp(-(((t - at) / width) ** 2))
    wave = wave - 0.4 * torch.exp(-(((t - at - 0.08) / 0.03) ** 2))
    wave = wave + 0.3 * (kind[:, None] != 1) * torch.exp(
        -(((t - at - 0.3) / 0.06) ** 2)
    )
    return (wave.unsqueeze(1) - 0.1) / 0.3, kind


def alpha_sigma(t):
    angle = (t.float() + 0.5) / TIMES * math.pi / 2
    return angle.cos().view(-1, 1, 1), angle.sin().view(-1, 1, 1)


class Residual(nn.Module):
    def __init__(self, width, cond, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.conv1 = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.conv2 = nn.Conv1d(width, width, 1)
        self.film = nn.Linear(cond, 2 * width)
        nn.init.zeros_(self.conv2.weight)
        nn.init.zeros_(self.conv2.bias)

    def forward(self, x, c):
        scale, shift = self.film(c).unsqueeze(-1).chunk(2, 1)
        y = self.norm(x) * (1 + scale) + shift
        return x + self.conv2(F.silu(self.conv1(F.silu(y))))


class Denoiser(nn.Module):
    def __init__(self, width=32, cond=48):
        super().__init__()
        self.register_buffer("freqs", torch.exp(torch.linspace(0, math.log(100.0), 16)))
        self.time = nn.Sequential(nn.Linear(32, cond), nn.SiLU(), nn.Linear(cond, cond))
        self.kind = nn.Embedding(KINDS + 1, cond)  # the last one stands for "no label"
        self.inp = nn.Conv1d(1, width, 5, padding=2)
        self.body = nn.ModuleList(Residual(width, cond, d) for d in (1, 2, 4, 8))
        self.out = nn.Conv1d(width, 1, 5, padding=2)

    def forward(self, x, t, kind):
        a = t[:, None].float() / TIMES * self.freqs
        c = F.silu(self.time(torch.cat([a.sin(), a.cos()], 1)) + self.kind(kind))
        x = self.inp(x)
        for block in self.body:
            x = block(x, c)
        return self.out(F.silu(x))


def v_loss(model, x, kind, t, noise):
    alpha, sigma = alpha_sigma(t)
    v = alpha * noise - sigma * x
    guess = model(alpha * x + sigma * noise, t, kind)
    snr = (alpha / sigma).pow(2).flatten()
    weight = snr.clamp(max=5.0) / (snr + 1)  # min-SNR, as it reads for v
    return (weight * (guess - v).pow(2).mean((1, 2))).mean()


@torch.no_grad()
def sample(model, kind, steps=20, guidance=1.5):
    x = torch.randn(len(kind), 1, LENGTH)
    times = torch.linspace(TIMES - 1, 0, steps).round().long()
    for i, t in enumerate(times):
        tt = t.expand(len(kind))
        alpha, sigma = alpha_sigma(tt)
        free = model(x, tt, torch.full_like(kind, KINDS))
        v = free + guidance * (model(x, tt, kind) - free)
        clean, noise = alpha * x - sigma * v, sigma * x + alpha * v
        if i + 1 == steps:
            return clean
        alpha, sigma = alpha_sigma(times[i + 1].expand(len(kind)))
        x = alpha * clean + sigma * noise


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    torch.manual_seed(4)
    x, kind = heartbeats(1500, torch.Generator().manual_seed(0))
    vx, vkind = heartbeats(256, torch.Generator().manual_seed(1))
    vt = torch.arange(256) * TIMES // 256
    vnoise = torch.randn(vx.shape, generator=torch.Generator().manual_seed(2))
    model = Denoiser()
    ema = copy.deepcopy(model).requires_grad_(False).eval()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.99))
    perm = torch.empty(0, dtype=torch.long)
    for step in range(args.steps):
        if len(perm) < 64:
            perm = torch.randperm(len(x))
        idx, perm = perm[:64], perm[64:]
        label = torch.where(torch.rand(64) < 0.1, KINDS, kind[idx])
        t = torch.randint(0, TIMES, (64,))
        loss = v_loss(model, x[idx], label, t, torch.randn_like(x[idx]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        decay = min(0.98, (1 + step) / (10 + step))
        with torch.no_grad():
            for e, q in zip(ema.parameters(), model.parameters()):
                e.lerp_(q, 1 - decay)
        if step % 10 == 0 or step == args.steps - 1:
            with torch.no_grad():
                val = v_loss(ema, vx, vkind, vt, vnoise).item()
            print(
                f"step {step:3d} loss {loss.item():.4f} averaged, validation {val:.4f}"
            )
    drawn = sample(ema, torch.arange(KINDS).repeat(16))
    print(
        f"drawn: mean {drawn.mean().item():.3f} std {drawn.std().item():.3f}; "
        f"data: mean {x.mean().item():.3f} std {x.std().item():.3f}"
    )


if __name__ == "__main__":
    main()
