"""DDPM on small 16x16 swirl pictures. Noise prediction, EMA weights for sampling."""
import math
from argparse import ArgumentParser
from copy import deepcopy

import torch
import torch.nn as nn
import torch.nn.functional as F

T = 100


def swirls(n, generator):
    lin = torch.linspace(-1, 1, 16)
    yy, xx = torch.meshgrid(lin, lin, indexing="ij")
    r, phi = (xx**2 + yy**2).sqrt(), torch.atan2(yy, xx)
    arms = torch.randint(1, 4, (n, 1, 1), generator=generator)
    twist = torch.rand(n, 1, 1, generator=generator) * 4 + 2
    shift = torch.rand(n, 1, 1, generator=generator) * 2 * math.pi
    img = torch.cos(arms * phi + twist * r + shift) * torch.exp(-r)
    return img.unsqueeze(1).clamp(-1, 1)


# ----------------------------------------------------------------- diffusion
def cosine_betas(steps, s=0.008):
    t = torch.linspace(0, steps, steps + 1, dtype=torch.float64) / steps
    f = torch.cos((t + s) / (1 + s) * math.pi / 2) ** 2
    return (1 - f[1:] / f[:-1]).clamp(max=0.999).float()


betas = cosine_betas(T)
alphas = 1 - betas
alpha_bar = torch.cumprod(alphas, 0)


def q_sample(x0, t, noise):
    ab = alpha_bar[t].view(-1, 1, 1, 1)
    return ab.sqrt() * x0 + (1 - ab).sqrt() * noise


@torch.no_grad()
def p_sample_loop(net, n, generator):
    net.eval()
    x = torch.randn(n, 1, 16, 16, generator=generator)
    for step in reversed(range(T)):
        t = torch.full((n,), step)
        eps = net(x, t)
        x0 = ((x - (1 - alpha_bar[step]).sqrt() * eps) / alpha_bar[step].sqrt()).clamp(
            -1, 1
        )
        if step == 0:
            return x0
        ab, ab_prev = alpha_bar[step], alpha_bar[step - 1]
        mean = (
            ab_prev.sqrt() * betas[step] * x0 + alphas[step].sqrt() * (1 - ab_prev) * x
        ) / (1 - ab)
        var = betas[step] * (1 - ab_prev) / (1 - ab)
        x = mean + var.sqrt() * torch.randn(x.shape, generator=generator)


# --------------------------------------------------------------------- model
class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer(
            "freq", torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
        )
        self.mlp = nn.Sequential(
            nn.Linear(dim, dim * 2), nn.SiLU(), nn.Linear(dim * 2, dim)
        )

    def forward(self, t):
        a = t[:, None].float() * self.freq
        return self.mlp(torch.cat([a.sin(), a.cos()], dim=1))


class ResBlock(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(4, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(tdim, cout)
        self.n2, self.c2 = nn.GroupNorm(4, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()
        nn.init.zeros_(self.c2.weight)
        nn.init.zeros_(self.c2.bias)

    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x))) + self.emb(F.silu(e))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class Denoiser(nn.Module):
    def __init__(self, ch=16, tdim=32):
        super().__init__()
        self.time = TimeEmbedding(tdim)
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.d1, self.d2 = ResBlock(ch, ch, tdim), ResBlock(ch, ch * 2, tdim)
        self.mid = ResBlock(ch * 2, ch * 2, tdim)
        self.u2, self.u1 = ResBlock(ch * 4, ch, tdim), ResBlock(ch * 2, ch, tdim)
        self.out = nn.Sequential(
            nn.GroupNorm(4, ch), nn.SiLU(), nn.Conv2d(ch, 1, 3, padding=1)
        )

    def forward(self, x, t):
        e = self.time(t)
        h1 = self.d1(self.inp(x), e)
        h2 = self.d2(F.avg_pool2d(h1, 2), e)
        m = self.mid(F.avg_pool2d(h2, 2), e)
        u = self.u2(torch.cat([F.interpolate(m, scale_factor=2), h2], 1), e)
        u = self.u1(torch.cat([F.interpolate(u, scale_factor=2), h1], 1), e)
        return self.out(u)


class EMA:
    def __init__(self, model, decay=0.99):
        self.model = deepcopy(model).eval().requires_grad_(False)
        self.decay, self.n = decay, 0

    @torch.no_grad()
    def update(self, model):
        self.n += 1
        d = min(self.decay, (1 + self.n) / (10 + self.n))
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.lerp_(p, 1 - d)
        for e, b in zip(self.model.buffers(), model.buffers()):
            e.copy_(b)


@torch.no_grad()
def val_loss(net, x, seed=99):
    """always the same t and noise, so that the numbers can be compared"""
    g = torch.Generator().manual_seed(seed)
    was_training = net.training
    net.eval()
    t = torch.randint(0, T, (len(x),), generator=g)
    noise = torch.randn(x.shape, generator=g)
    loss = F.mse_loss(net(q_sample(x, t, noise), t), noise).item()
    net.train(was_training)
    return loss


def cycle(x, batch_size):
    while True:
        for idx in torch.randperm(len(x)).split(batch_size):
            if len(idx) == batch_size:
                yield x[idx]


def main(steps, batch_size, lr, seed):
    torch.manual_seed(seed)
    g = torch.Generator().manual_seed(seed)
    train, val = swirls(1500, g), swirls(128, g)

    net = Denoiser()
    ema = EMA(net)
    opt = torch.optim.Adam(net.parameters(), lr=lr, betas=(0.9, 0.99))
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=20)
    data = cycle(train, batch_size)
    running = None
    for step in range(1, steps + 1):
        net.train()
        x0 = next(data)
        t = torch.randint(0, T, (batch_size,))
        noise = torch.randn_like(x0)
        loss = F.mse_loss(net(q_sample(x0, t, noise), t), noise)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        warm.step()
        ema.update(net)
        running = (
            loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        )
        if step % 40 == 0 or step == steps:
            print(
                f"{step:5d} loss {running:.4f} val {val_loss(net, val):.4f} val(ema) {val_loss(ema.model, val):.4f}"
            )
    samples = p_sample_loop(ema.model, 16, g)
    print(
        f"samples mean {samples.mean():.3f} std {samples.std():.3f}  "
        f"data mean {train.mean():.3f} std {train.std():.3f}"
    )


if __name__ == "__main__":
    ap = ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch_size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=0)
    main(**vars(ap.parse_args()))
