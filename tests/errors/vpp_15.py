"""Diffusion policy on top of pooled video features.

A short clip (4 frames) shows a blob drifting towards a goal; the policy predicts the
chunk of 8 two-dimensional actions that leads from the last position to the goal.
"""
import argparse
import math

import torch
from torch import nn


def build_clips(n, gen):
    grid = torch.linspace(-1, 1, 12)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    start = torch.rand(n, 2, generator=gen) * 1.2 - 0.6
    goal = torch.rand(n, 2, generator=gen) * 1.6 - 0.8
    frames = []
    for k in range(4):
        pos = start + (goal - start) * 0.1 * k
        d = (xx[None] - pos[:, :1, None]) ** 2 + (yy[None] - pos[:, 1:, None]) ** 2
        g = (xx[None] - goal[:, :1, None]) ** 2 + (yy[None] - goal[:, 1:, None]) ** 2
        frames.append(torch.stack([torch.exp(-d / 0.05), torch.exp(-g / 0.05)], 1))
    clip = torch.stack(frames, 1) + 0.05 * torch.randn(n, 4, 2, 12, 12, generator=gen)
    last = start + (goal - start) * 0.3
    t = torch.linspace(0, 1, 8)[None, :, None]
    bend = (
        torch.sin(math.pi * t)
        * (goal - last).flip(-1)[:, None]
        * torch.tensor([-0.2, 0.2])
    )
    actions = last[:, None] + t * (goal - last)[:, None] + bend
    return clip, actions


class VideoEncoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(8, 24, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(24, 32, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(32 * 9, dim),
        )

    def forward(self, clip):
        return self.body(clip.flatten(1, 2))


class ActionNet(nn.Module):
    def __init__(self, dim=64, horizon=8):
        super().__init__()
        self.horizon = horizon
        self.sigma_mlp = nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, dim))
        self.inp = nn.Linear(horizon * 2, dim)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(dim),
                nn.Linear(dim, 2 * dim),
                nn.GELU(),
                nn.Linear(2 * dim, dim),
            )
            for _ in range(3)
        )
        self.out = nn.Linear(dim, horizon * 2)

    def forward(self, actions, cond, c_noise):
        h = self.inp(actions.flatten(1)) + cond + self.sigma_mlp(c_noise[:, None])
        for blk in self.blocks:
            h = h + blk(h)
        return self.out(h).view(-1, self.horizon, 2)


class Denoiser(nn.Module):
    """EDM preconditioning around ActionNet."""

    def __init__(self, sigma_data=0.5, fixed=False):
        super().__init__()
        self.net = ActionNet()
        self.sigma_data = sigma_data
        self.fixed = fixed

    def scalings(self, sigma):
        s = sigma.view(-1, 1, 1)
        total = s**2 + self.sigma_data**2
        return (
            self.sigma_data**2 / total,
            s * self.sigma_data / total.sqrt(),
            1 / total.sqrt(),
        )

    def loss(self, actions, cond, noise, sigma):
        c_skip, c_out, c_in = self.scalings(sigma)
        noised = actions + noise * sigma.view(-1, 1, 1)
        model_output = self.net(noised * c_in, cond, sigma.log() / 4)
        target = (actions - c_skip * noised) / c_out
        if self.fixed:
            return target, model_output
        loss = (model_output - target).pow(2).flatten(1).mean(1)
        return loss.mean(), model_output

    def forward(self, noised, cond, sigma):
        c_skip, c_out, c_in = self.scalings(sigma)
        return c_skip * noised + c_out * self.net(noised * c_in, cond, sigma.log() / 4)


class Policy(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.encoder = VideoEncoder()
        self.model = Denoiser(fixed=fixed)

    def diffusion_loss(self, clip, actions, noise, sigma):
        cond = self.encoder(clip)
        target, out = self.model.loss(actions, cond, noise, sigma)
        return target, out

    def training_step(self, clip, actions, gen):
        noise = torch.randn(actions.shape, generator=gen)
        sigma = (
            (torch.randn(len(actions), generator=gen) * 1.0 - 0.8)
            .exp()
            .clamp(0.02, 4.0)
        )
        target, out = self.diffusion_loss(clip, actions, noise, sigma)
        return (out - target).pow(2).mean()

    @torch.no_grad()
    def sample(self, clip, gen, n_steps=8):
        cond = self.encoder(clip)
        sigmas = torch.logspace(math.log10(3.0), math.log10(0.02), n_steps)
        sigmas = torch.cat([sigmas, torch.zeros(1)])
        x = torch.randn(len(clip), 8, 2, generator=gen) * sigmas[0]
        for a, b in zip(sigmas[:-1], sigmas[1:]):
            denoised = self.model(x, cond, a.expand(len(x)))
            x = x + (x - denoised) / a * (b - a)
        return x


def reference_check(policy, clip, actions):
    gen = torch.Generator().manual_seed(99)
    got = policy.training_step(clip, actions, gen)
    gen = torch.Generator().manual_seed(99)
    noise = torch.randn(actions.shape, generator=gen)
    sigma = (
        (torch.randn(len(actions), generator=gen) * 1.0 - 0.8).exp().clamp(0.02, 4.0)
    )
    c_skip, c_out, c_in = policy.model.scalings(sigma)
    noised = actions + noise * sigma.view(-1, 1, 1)
    out = policy.model.net(noised * c_in, policy.encoder(clip), sigma.log() / 4)
    want = (c_out * out + c_skip * noised - actions).div(c_out).pow(2).mean()
    params = [p for p in policy.parameters()]
    ga = torch.cat(
        [g.flatten() for g in torch.autograd.grad(got, params, retain_graph=True)]
    )
    gb = torch.cat([g.flatten() for g in torch.autograd.grad(want, params)])
    cos = torch.dot(ga, gb) / (ga.norm() * gb.norm() + 1e-12)
    return got.item(), want.item(), cos.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(7)
    gen = torch.Generator().manual_seed(11)
    clips, acts = build_clips(1024, gen)
    val_clips, val_acts = build_clips(128, gen)
    policy = Policy(args.fixed)
    opt = torch.optim.AdamW(policy.parameters(), lr=args.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)

    for step in range(args.steps):
        idx = torch.randint(0, len(clips), (args.batch,), generator=gen)
        loss = policy.training_step(clips[idx], acts[idx], gen)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 30 == 0 or step == args.steps - 1:
            print(f"step {step:4d}  loss {loss.item():.4f}")

    policy.eval()
    pred = policy.sample(val_clips, torch.Generator().manual_seed(5))
    print(f"val action mse {(pred - val_acts).pow(2).mean().item():.4f}")

    if args.prove:
        got, want, cos = reference_check(policy, val_clips, val_acts)
        print(
            f"training objective {got:.5f}  denoising objective {want:.5f}  gradient cosine {cos:.4f}"
        )
        shows = abs(got - want) > 1e-3 * max(abs(want), 1e-6) or cos < 0.999
        print("fault shows:", "yes" if shows else "no")


if __name__ == "__main__":
    main()
