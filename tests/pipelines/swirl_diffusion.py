"""Denoising diffusion on a two-dimensional swirl, class-conditional with guidance."""
import argparse
import copy
import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class DiffusionConfig:
    steps: int = 400
    batch: int = 256
    lr: float = 2e-3
    timesteps: int = 50
    hidden: int = 96
    p_uncond: float = 0.1
    guidance: float = 0.5
    ema_decay: float = 0.99
    grad_clip: float = 1.0
    seed: int = 0


def swirl(n, generator):
    """Two interleaved arms; the arm is the class."""
    arm = torch.randint(2, (n,), generator=generator)
    t = 0.6 + 2.4 * math.pi * torch.rand(n, generator=generator).sqrt()
    angle = t + math.pi * arm
    xy = torch.stack([t * angle.cos(), t * angle.sin()], 1)
    return xy + 0.15 * torch.randn(n, 2, generator=generator), arm


class Schedule:
    def __init__(self, T):
        s = 0.008
        t = torch.arange(T + 1, dtype=torch.float64) / T
        f = torch.cos((t + s) / (1 + s) * math.pi / 2) ** 2
        betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        alphas = 1 - betas
        self.T = T
        self.betas = betas.float()
        self.alphas = alphas.float()
        self.alpha_bar = torch.cumprod(alphas, 0).float()
        prev = torch.cat([torch.ones(1), self.alpha_bar[:-1]])
        self.posterior_var = self.betas * (1 - prev) / (1 - self.alpha_bar)

    def add_noise(self, x0, t, noise):
        a = self.alpha_bar[t].unsqueeze(1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise


class Denoiser(nn.Module):
    NULL = 2

    def __init__(self, hidden, T):
        super().__init__()
        freqs = torch.exp(torch.linspace(0, math.log(200.0), 16))
        self.register_buffer("freqs", freqs)
        self.T = T
        self.label = nn.Embedding(3, 16)
        self.inp = nn.Linear(2, hidden)
        self.cond = nn.Linear(32 + 16, hidden)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.LayerNorm(hidden),
                    nn.Linear(hidden, hidden),
                    nn.SiLU(),
                    nn.Linear(hidden, hidden),
                )
                for _ in range(3)
            ]
        )
        self.out = nn.Linear(hidden, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t, y):
        phase = (t.float() / self.T).unsqueeze(1) * self.freqs
        c = self.cond(torch.cat([phase.sin(), phase.cos(), self.label(y)], 1))
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h + c)
        return self.out(h)


class EMA:
    def __init__(self, model, decay):
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.n = decay, 0

    @torch.no_grad()
    def update(self, model):
        self.n += 1
        d = min(self.decay, (1 + self.n) / (10 + self.n))
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(d).add_(p, alpha=1 - d)


@torch.no_grad()
def sample(model, sched, n, guidance, generator):
    y = torch.arange(n) % 2
    null = torch.full_like(y, Denoiser.NULL)
    x = torch.randn(n, 2, generator=generator)
    for i in reversed(range(sched.T)):
        t = torch.full((n,), i)
        eps_c, eps_u = model(x, t, y), model(x, t, null)
        eps = eps_c + guidance * (eps_c - eps_u)
        a_bar = sched.alpha_bar[i]
        x0 = ((x - (1 - a_bar).sqrt() * eps) / a_bar.sqrt()).clamp(-3, 3)
        prev_bar = sched.alpha_bar[i - 1] if i > 0 else torch.tensor(1.0)
        mean = (
            sched.betas[i] * prev_bar.sqrt() * x0
            + sched.alphas[i].sqrt() * (1 - prev_bar) * x
        ) / (1 - a_bar)
        x = mean
        if i > 0:
            x = x + sched.posterior_var[i].sqrt() * torch.randn(
                n, 2, generator=generator
            )
    return x, y


@torch.no_grad()
def validation_loss(model, sched, x, y, repeats=4):
    g = torch.Generator().manual_seed(77)
    total = 0.0
    for _ in range(repeats):
        t = torch.randint(sched.T, (len(x),), generator=g)
        noise = torch.randn(x.shape, generator=g)
        total += (
            (model(sched.add_noise(x, t, noise), t, y) - noise).pow(2).mean().item()
        )
    return total / repeats


def nearest_distance(a, b):
    """Mean distance of the points of a to the closest point of b."""
    return torch.cdist(a, b).min(dim=1).values.mean().item()


def train(cfg):
    torch.manual_seed(cfg.seed)
    g = torch.Generator().manual_seed(cfg.seed + 1)
    train_x, train_y = swirl(8000, g)
    val_x, val_y = swirl(1000, g)
    center, scale = train_x.mean(0), train_x.std()
    train_x, val_x = (train_x - center) / scale, (val_x - center) / scale

    sched = Schedule(cfg.timesteps)
    model = Denoiser(cfg.hidden, cfg.timesteps)
    ema = EMA(model, cfg.ema_decay)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=cfg.lr, weight_decay=1e-4, betas=(0.9, 0.99)
    )
    lr_sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=cfg.steps)

    window = []
    for step in range(1, cfg.steps + 1):
        idx = torch.randint(len(train_x), (cfg.batch,))
        x0, y = train_x[idx], train_y[idx]
        y = torch.where(
            torch.rand(cfg.batch) < cfg.p_uncond, torch.full_like(y, Denoiser.NULL), y
        )
        t = torch.randint(sched.T, (cfg.batch,))
        noise = torch.randn_like(x0)
        loss = (model(sched.add_noise(x0, t, noise), t, y) - noise).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
        optimizer.step()
        lr_sched.step()
        ema.update(model)
        window.append(loss.item())
        if step % 50 == 0:
            v_raw = validation_loss(model, sched, val_x, val_y)
            v_ema = validation_loss(ema.shadow, sched, val_x, val_y)
            print(
                f"{step:5d} loss {sum(window) / len(window):.4f} val {v_raw:.4f} val(ema) {v_ema:.4f}"
            )
            window.clear()

    gen = torch.Generator().manual_seed(cfg.seed + 2)
    points, arms = sample(ema.shadow, sched, 400, cfg.guidance, gen)
    for k in (0, 1):
        own = nearest_distance(points[arms == k], val_x[val_y == k])
        other = nearest_distance(points[arms == k], val_x[val_y != k])
        print(f"arm {k}: distance to own arm {own:.3f}, to the other {other:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=DiffusionConfig.steps)
    train(DiffusionConfig(steps=parser.parse_args().steps))
