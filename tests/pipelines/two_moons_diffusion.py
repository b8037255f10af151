"""DDPM on a 2-d toy set, class conditional with classifier-free guidance.

EMA via torch.optim.swa_utils, micro-batches, DDIM-like sampling at the end.
"""
import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

T = 100
NULL_CLASS = 2  # index of the "no label" embedding


def two_moons(n, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    a = rng.uniform(0, np.pi, n)
    x = np.where(label == 0, np.cos(a), 1 - np.cos(a))
    y = np.where(label == 0, np.sin(a), 0.5 - np.sin(a))
    pts = np.stack([x - 0.5, y - 0.25], 1) + rng.normal(0, 0.06, (n, 2))
    return torch.tensor(pts / 0.7, dtype=torch.float32), torch.tensor(label)


class Schedule(nn.Module):
    def __init__(self):
        super().__init__()
        s = 0.008
        t = torch.arange(T + 1, dtype=torch.float64) / T
        f = torch.cos((t + s) / (1 + s) * math.pi / 2) ** 2
        betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        self.register_buffer("abar", torch.cumprod(1 - betas, 0).float())

    def add_noise(self, x0, t, noise):
        a = self.abar[t, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * noise


class Denoiser(nn.Module):
    def __init__(self, width=96, depth=3, time_dim=32):
        super().__init__()
        freqs = torch.exp(torch.linspace(0, math.log(200), time_dim // 2))
        self.register_buffer("freqs", freqs)
        self.cls = nn.Embedding(3, time_dim)
        self.inp = nn.Linear(2, width)
        self.cond = nn.Sequential(nn.Linear(time_dim, width), nn.SiLU())
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.LayerNorm(width),
                    nn.Linear(width, width),
                    nn.SiLU(),
                    nn.Linear(width, width),
                )
                for _ in range(depth)
            ]
        )
        self.out = nn.Linear(width, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t, c):
        ang = t.float()[:, None] / T * self.freqs
        emb = self.cond(torch.cat([ang.sin(), ang.cos()], 1) + self.cls(c))
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h + emb)
        return self.out(h)


def diffusion_loss(net, schedule, x0, c, drop_prob=0.0, generator=None):
    n = len(x0)
    t = torch.randint(0, T, (n,), generator=generator)
    noise = torch.randn(x0.shape, generator=generator)
    if drop_prob > 0:
        drop = torch.rand(n, generator=generator) < drop_prob
        c = torch.where(drop, torch.full_like(c, NULL_CLASS), c)
    pred = net(schedule.add_noise(x0, t, noise), t, c)
    return (pred - noise).pow(2).mean()


@torch.no_grad()
def held_out_loss(net, schedule, data, repeats=4):
    """always the same times and noises, so that numbers of different steps compare"""
    net.eval()
    g = torch.Generator().manual_seed(1234)
    return (
        sum(
            diffusion_loss(net, schedule, *data, generator=g).item()
            for _ in range(repeats)
        )
        / repeats
    )


@torch.no_grad()
def ddim(net, schedule, labels, guidance=1.5, n_steps=25):
    net.eval()
    x = torch.randn(len(labels), 2)
    times = torch.linspace(T - 1, 0, n_steps).round().long()
    null = torch.full_like(labels, NULL_CLASS)
    for i, t in enumerate(times):
        tt = t.expand(len(labels))
        e_c, e_0 = net(x, tt, labels), net(x, tt, null)
        eps = e_0 + guidance * (e_c - e_0)
        a = schedule.abar[t]
        x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-3, 3)
        eps = (x - a.sqrt() * x0) / (1 - a).sqrt()
        a_next = (
            schedule.abar[times[i + 1]] if i + 1 < len(times) else torch.tensor(1.0)
        )
        x = a_next.sqrt() * x0 + (1 - a_next).sqrt() * eps
    return x


def nearest(a, b):
    """mean distance of each sample to the closest real point"""
    return torch.cdist(a, b).min(1).values.mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=256, help="effective batch")
    ap.add_argument(
        "--micro", type=int, default=96, help="largest batch that fits in memory"
    )
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--ema", type=float, default=0.98)
    ap.add_argument("--log-every", type=int, default=80)
    args = ap.parse_args()
    torch.manual_seed(2)

    x, c = two_moons(4000, 1)
    held_out = two_moons(800, 2)
    schedule, net = Schedule(), Denoiser()
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(args.ema))
    opt = torch.optim.AdamW(
        net.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=1e-4
    )
    warmup = min(30, args.steps // 4)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min(1.0, (s + 1) / max(1, warmup))
        * (1.0 if s < args.steps * 0.6 else 0.3),
    )

    print(f"step    0 held-out {held_out_loss(net, schedule, held_out):.4f}")
    window = []
    for step in range(1, args.steps + 1):
        net.train()
        idx = torch.randint(0, len(x), (args.batch,))
        opt.zero_grad()
        batch_loss = 0.0
        # micro-batches need not be of equal size: weigh each with its share
        for part in idx.split(args.micro):
            share = len(part) / len(idx)
            loss = (
                diffusion_loss(net, schedule, x[part], c[part], drop_prob=0.15) * share
            )
            loss.backward()
            batch_loss += loss.item()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        ema.update_parameters(net)
        window.append(batch_loss)

        if step % args.log_every == 0 or step == args.steps:
            print(
                f"step {step:4d} train {sum(window) / len(window):.4f} "
                f"held-out {held_out_loss(net, schedule, held_out):.4f} "
                f"ema {held_out_loss(ema, schedule, held_out):.4f} lr {sched.get_last_lr()[0]:.1e}"
            )
            window.clear()

    for k in (0, 1):
        s = ddim(ema, schedule, torch.full((300,), k))
        same, other = (nearest(s, held_out[0][held_out[1] == j]) for j in (k, 1 - k))
        print(f"class {k}: distance to own moon {same:.3f}, to the other {other:.3f}")


if __name__ == "__main__":
    main()
