"""DDPM on 2-d points (three spirals), class-conditional with guidance. EMA weights for sampling."""
import argparse
import math

import torch
import torch.nn as nn


class Schedule:
    def __init__(self, T):
        t = torch.arange(T + 1, dtype=torch.float64) / T
        f = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
        beta = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        self.T = T
        self.beta = beta.float()
        self.alpha = 1 - self.beta
        self.abar = torch.cumprod(1 - beta, 0).float()

    def q_sample(self, x0, t, noise):
        a = self.abar[t].unsqueeze(1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise


def spirals(n, gen):
    c = torch.randint(0, 3, (n,), generator=gen)
    r = torch.rand(n, generator=gen).sqrt()
    a = 4.5 * r + c * 2 * math.pi / 3
    x = torch.stack([r * a.cos(), r * a.sin()], 1) + 0.02 * torch.randn(
        n, 2, generator=gen
    )
    return x, c


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer(
            "freq", torch.exp(torch.linspace(0, math.log(1000), dim // 2)) / 1000
        )

    def forward(self, t):
        a = t.float().unsqueeze(1) * self.freq
        return torch.cat([a.sin(), a.cos()], 1)


class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.a, self.b, self.cond = (
            nn.LayerNorm(d),
            nn.Linear(d, d),
            nn.Linear(d, d),
            nn.Linear(d, d),
        )
        nn.init.zeros_(self.b.weight)
        nn.init.zeros_(self.b.bias)

    def forward(self, x, c):
        return x + self.b(torch.nn.functional.silu(self.a(self.norm(x)) + self.cond(c)))


class Denoiser(nn.Module):
    NULL = 3  # class index for "no class"

    def __init__(self, d=96, blocks=3):
        super().__init__()
        self.time = nn.Sequential(
            TimeEmbedding(d), nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d)
        )
        self.label = nn.Embedding(4, d)
        self.inp = nn.Linear(2, d)
        self.blocks = nn.ModuleList(ResBlock(d) for _ in range(blocks))
        self.out = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2))

    def forward(self, x, t, c):
        cond = self.time(t) + self.label(c)
        h = self.inp(x)
        for blk in self.blocks:
            h = blk(h, cond)
        return self.out(h)


@torch.no_grad()
def sample(net, sch, c, guidance, gen):
    net.eval()
    x = torch.randn(len(c), 2, generator=gen)
    null = torch.full_like(c, Denoiser.NULL)
    for i in reversed(range(sch.T)):
        t = torch.full((len(c),), i)
        e = net(x, t, c)
        if guidance != 0:
            e = (1 + guidance) * e - guidance * net(x, t, null)
        x0 = ((x - (1 - sch.abar[i]).sqrt() * e) / sch.abar[i].sqrt()).clamp(-1.5, 1.5)
        if i == 0:
            return x0
        prev = sch.abar[i - 1]
        mean = (
            prev.sqrt() * sch.beta[i] * x0 + sch.alpha[i].sqrt() * (1 - prev) * x
        ) / (1 - sch.abar[i])
        var = sch.beta[i] * (1 - prev) / (1 - sch.abar[i])
        x = mean + var.sqrt() * torch.randn(x.shape, generator=gen)


@torch.no_grad()
def denoising_loss(net, sch, x, c, seed):
    """same times and noise for every call, so that the numbers can be compared"""
    net.eval()
    g = torch.Generator().manual_seed(seed)
    t = torch.randint(0, sch.T, (len(x),), generator=g)
    noise = torch.randn(x.shape, generator=g)
    return (net(sch.q_sample(x, t, noise), t, c) - noise).pow(2).mean().item()


def chamfer(a, b):
    d = torch.cdist(a, b)
    return (d.min(1).values.mean() + d.min(0).values.mean()).item()


def make_optimizer(net, args):
    opt = torch.optim.AdamW(
        net.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=1e-3
    )
    warm = min(25, args.steps)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: (s + 1) / warm
        if s < warm
        else 1 - 0.9 * (s - warm) / max(1, args.steps - warm),
    )
    return opt, sched


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch-size", type=int, default=256)
    ap.add_argument("--T", type=int, default=50)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--p-uncond", type=float, default=0.15)
    ap.add_argument("--ema", type=float, default=0.99)
    ap.add_argument("--guidance", type=float, default=0.5)
    ap.add_argument("--seed", type=int, default=21)
    return ap.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    train_x, train_c = spirals(4096, gen)
    valid_x, valid_c = spirals(1000, gen)
    scale = train_x.std()
    train_x, valid_x = train_x / scale * 0.5, valid_x / scale * 0.5

    sch = Schedule(args.T)
    net = Denoiser()
    ema = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(args.ema)
    )
    opt, sched = make_optimizer(net, args)

    recent, skipped = [], 0
    for step in range(1, args.steps + 1):
        net.train()
        idx = torch.randint(0, len(train_x), (args.batch_size,))  # with replacement
        x0, c = train_x[idx], train_c[idx]
        c = torch.where(
            torch.rand(len(c)) < args.p_uncond, torch.full_like(c, Denoiser.NULL), c
        )
        t = torch.randint(0, sch.T, (len(x0),))
        noise = torch.randn_like(x0)
        loss = (net(sch.q_sample(x0, t, noise), t, c) - noise).pow(2).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if not torch.isfinite(norm):
            skipped += 1
            opt.zero_grad(set_to_none=True)
            continue
        opt.step()
        sched.step()
        ema.update_parameters(net)
        recent.append(loss.item())
        if step % 80 == 0 or step == args.steps:
            print(
                f"step {step} loss {sum(recent) / len(recent):.4f} "
                f"valid {denoising_loss(net, sch, valid_x, valid_c, 0):.4f} "
                f"valid (ema) {denoising_loss(ema, sch, valid_x, valid_c, 0):.4f} norm {norm:.2f}"
            )
            recent.clear()

    g = torch.Generator().manual_seed(args.seed + 1)
    for k in range(3):
        pts = sample(ema, sch, torch.full((300,), k), args.guidance, g)
        print(
            f"arm {k}: chamfer to its own arm {chamfer(pts, valid_x[valid_c == k]):.3f}, "
            f"to the next arm {chamfer(pts, valid_x[valid_c == (k + 1) % 3]):.3f}"
        )
    if skipped:
        print(f"{skipped} updates skipped")


if __name__ == "__main__":
    main()
