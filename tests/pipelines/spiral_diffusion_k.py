"""Denoising diffusion on 2-d points (two spirals and a ring), class-conditional with
classifier-free guidance, EMA weights for sampling, bfloat16 autocast and gradient accumulation."""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

N_CLASSES = 3
NULL = N_CLASSES  # the "no label" token


def sample_points(n, gen):
    y = torch.randint(0, N_CLASSES, (n,), generator=gen)
    u = torch.rand(n, generator=gen)
    ang = torch.where(
        y == 2, 2 * math.pi * u, 0.6 * math.pi + 2.4 * math.pi * u + math.pi * y
    )
    rad = torch.where(y == 2, torch.full_like(u, 2.2), 0.3 + 1.4 * u)
    pts = torch.stack([rad * ang.cos(), rad * ang.sin()], 1)
    return pts + 0.04 * torch.randn(n, 2, generator=gen), y


class CosineSchedule:
    def __init__(self, T, s=0.008):
        self.T = T
        t = torch.arange(T + 1, dtype=torch.float64) / T
        f = torch.cos((t + s) / (1 + s) * math.pi / 2) ** 2
        beta = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        self.beta = beta.float()
        self.alpha = 1 - self.beta
        self.abar = torch.cumprod(1 - beta, 0).float()
        self.abar_prev = F.pad(self.abar[:-1], (1, 0), value=1.0)

    def add_noise(self, x0, t, noise):
        a = self.abar[t].unsqueeze(1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise


def time_features(t, dim=32):
    freq = torch.exp(-math.log(10000.0) * torch.arange(dim // 2) / (dim // 2))
    arg = t.float().unsqueeze(1) * freq
    return torch.cat([arg.sin(), arg.cos()], 1)


class ResLayer(nn.Module):
    def __init__(self, width, cond):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.film = nn.Linear(cond, 2 * width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, h, c):
        scale, shift = self.film(c).chunk(2, dim=1)
        z = self.norm(h) * (1 + scale) + shift
        return h + self.fc2(F.silu(self.fc1(z)))


class Denoiser(nn.Module):
    def __init__(self, width=64, depth=3, cond=48):
        super().__init__()
        self.inp = nn.Linear(2, width)
        self.time = nn.Sequential(nn.Linear(32, cond), nn.SiLU(), nn.Linear(cond, cond))
        self.label = nn.Embedding(N_CLASSES + 1, cond)
        self.layers = nn.ModuleList(ResLayer(width, cond) for _ in range(depth))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2))
        nn.init.zeros_(self.out[1].weight)
        nn.init.zeros_(self.out[1].bias)

    def forward(self, x, t, y):
        c = F.silu(self.time(time_features(t)) + self.label(y))
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h, c)
        return self.out(h)


class DiffusionTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        gen = torch.Generator().manual_seed(cfg.seed)
        self.points, self.labels = sample_points(6000, gen)
        self.scale = self.points.std()
        self.points = self.points / self.scale
        val_x, self.val_y = sample_points(1000, gen)
        self.val_x = val_x / self.scale
        # the same times and noises at every validation, so that numbers can be compared
        self.val_t = torch.randint(0, cfg.T, (1000,), generator=gen)
        self.val_noise = torch.randn(1000, 2, generator=gen)
        self.sched = CosineSchedule(cfg.T)
        self.net = Denoiser()
        self.ema = copy.deepcopy(self.net).requires_grad_(False).eval()
        self.opt = torch.optim.AdamW(
            self.net.parameters(), lr=cfg.lr, weight_decay=1e-4
        )
        warm = torch.optim.lr_scheduler.LinearLR(self.opt, 0.1, 1.0, total_iters=20)
        main = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.opt, max(1, cfg.steps - 20), eta_min=cfg.lr * 0.05
        )
        self.lr_sched = torch.optim.lr_scheduler.SequentialLR(
            self.opt, [warm, main], milestones=[20]
        )

    def micro_loss(self):
        idx = torch.randint(0, len(self.points), (self.cfg.batch,))
        x0, y = self.points[idx], self.labels[idx]
        y = torch.where(torch.rand(len(y)) < self.cfg.p_uncond, NULL, y)
        t = torch.randint(0, self.cfg.T, (len(x0),))
        noise = torch.randn_like(x0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not self.cfg.no_amp):
            pred = self.net(self.sched.add_noise(x0, t, noise), t, y)
        return F.mse_loss(pred.float(), noise)

    @torch.no_grad()
    def update_ema(self, step):
        decay = min(self.cfg.ema, (step + 1) / (step + 10))
        torch._foreach_lerp_(
            list(self.ema.parameters()), list(self.net.parameters()), 1 - decay
        )

    @torch.no_grad()
    def validate(self):
        noisy = self.sched.add_noise(self.val_x, self.val_t, self.val_noise)
        return F.mse_loss(
            self.ema(noisy, self.val_t, self.val_y), self.val_noise
        ).item()

    @torch.no_grad()
    def generate(self, n, guidance):
        s = self.sched
        y = torch.arange(n) % N_CLASSES
        x = torch.randn(n, 2)
        for i in reversed(range(s.T)):
            t = torch.full((n,), i)
            e_c, e_u = self.ema(x, t, y), self.ema(x, t, torch.full_like(y, NULL))
            eps = e_u + guidance * (e_c - e_u)
            x0 = ((x - (1 - s.abar[i]).sqrt() * eps) / s.abar[i].sqrt()).clamp(-3, 3)
            mean = (
                s.abar_prev[i].sqrt() * s.beta[i] * x0
                + s.alpha[i].sqrt() * (1 - s.abar_prev[i]) * x
            ) / (1 - s.abar[i])
            var = s.beta[i] * (1 - s.abar_prev[i]) / (1 - s.abar[i])
            x = mean + var.sqrt() * torch.randn_like(x) if i > 0 else mean
        return x * self.scale, y

    def fit(self):
        cfg, smooth = self.cfg, None
        for step in range(cfg.steps):
            self.net.train()
            total = 0.0
            for _ in range(cfg.accum):
                loss = self.micro_loss() / cfg.accum
                loss.backward()
                total += loss.item()
            norm = nn.utils.clip_grad_norm_(
                self.net.parameters(), 1.0, error_if_nonfinite=True
            )
            self.opt.step()
            self.opt.zero_grad()
            self.lr_sched.step()
            self.update_ema(step)
            smooth = total if smooth is None else 0.95 * smooth + 0.05 * total
            if (step + 1) % 50 == 0 or step + 1 == cfg.steps:
                print(
                    f"step {step + 1} loss {smooth:.4f} val(ema) {self.validate():.4f} norm {norm:.2f}"
                )
        x, y = self.generate(300, cfg.guidance)
        ring = x[y == 2].norm(dim=1)
        print(
            f"ring radius of samples {ring.mean():.2f} +- {ring.std():.2f} (data 2.20)"
        )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=250)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--accum", type=int, default=2)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--T", type=int, default=60)
    ap.add_argument("--p-uncond", type=float, default=0.1)
    ap.add_argument("--guidance", type=float, default=1.5)
    ap.add_argument("--ema", type=float, default=0.98)
    ap.add_argument("--no-amp", action="store_true")
    ap.add_argument("--seed", type=int, default=6)
    cfg = ap.parse_args()
    torch.manual_seed(cfg.seed)
    DiffusionTrainer(cfg).fit()
