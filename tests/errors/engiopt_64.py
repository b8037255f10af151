"""Conditional 1D diffusion over blade thickness profiles.

Designs are 64 samples of the thickness along the chord, in millimetres; the
condition is the load the blade has to carry.  After training, a set of designs
is generated for a few loads and stored together with the model.
"""
from __future__ import annotations

import argparse
import math
import os
import tempfile

import torch as th
from torch import nn
import torch.nn.functional as F

N_POINTS = 64


def make_designs(n: int, gen: th.Generator) -> tuple[th.Tensor, th.Tensor]:
    s = th.linspace(0, 1, N_POINTS)
    load = th.rand(n, 1, generator=gen)
    peak = 0.3 + 0.15 * load + 0.03 * th.randn(n, 1, generator=gen)
    width = 0.18 + 0.04 * th.rand(n, 1, generator=gen)
    height = 3.0 + 4.5 * load + 0.2 * th.randn(n, 1, generator=gen)
    bump = height * th.exp(-(((s - peak) / width) ** 2) / 2)
    ripple = 0.15 * th.sin(2 * math.pi * (3 * s + th.rand(n, 1, generator=gen)))
    return bump + ripple, load


class Normalizer:
    """Maps the range seen in the training designs to [0, 1] and back."""

    def __init__(self, data: th.Tensor):
        self.lo, self.hi = data.min(), data.max()

    def normalize(self, x: th.Tensor) -> th.Tensor:
        return (x - self.lo) / (self.hi - self.lo)

    def denormalize(self, x: th.Tensor) -> th.Tensor:
        return x * (self.hi - self.lo) + self.lo


class ResBlock(nn.Module):
    def __init__(self, ch: int, emb: int, dilation: int):
        super().__init__()
        self.norm = nn.GroupNorm(4, ch)
        self.conv1 = nn.Conv1d(ch, ch, 3, padding=dilation, dilation=dilation)
        self.emb = nn.Linear(emb, ch)
        self.conv2 = nn.Conv1d(ch, ch, 3, padding=1)

    def forward(self, x: th.Tensor, emb: th.Tensor) -> th.Tensor:
        h = self.conv1(F.silu(self.norm(x))) + self.emb(emb)[:, :, None]
        return x + self.conv2(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, ch: int = 24, emb: int = 32):
        super().__init__()
        self.half = emb // 2
        self.embed = nn.Sequential(
            nn.Linear(emb + 1, emb), nn.SiLU(), nn.Linear(emb, emb)
        )
        self.inp = nn.Conv1d(2, ch, 3, padding=1)
        self.blocks = nn.ModuleList(ResBlock(ch, emb, d) for d in (1, 4, 16, 1))
        self.out = nn.Conv1d(ch, 1, 1)

    def forward(self, x: th.Tensor, t: th.Tensor, cond: th.Tensor) -> th.Tensor:
        freqs = th.exp(-math.log(1000) * th.arange(self.half) / self.half)
        angle = t[:, None].float() * freqs
        emb = self.embed(th.cat([angle.sin(), angle.cos(), cond], dim=1))
        place = th.linspace(-1, 1, x.shape[-1]).expand_as(x)
        h = self.inp(th.cat([x, place], dim=1))
        for block in self.blocks:
            h = block(h, emb)
        return self.out(h)


class GaussianDiffusion1D(nn.Module):
    """Noise-prediction DDPM for profiles in [0, 1]; works in [-1, 1] inside."""

    def __init__(self, model: nn.Module, timesteps: int):
        super().__init__()
        self.model = model
        self.timesteps = timesteps
        u = th.linspace(0, 1, timesteps + 1)
        f = th.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2
        betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        self.register_buffer("betas", betas)
        self.register_buffer("alphas_bar", (1 - betas).cumprod(0))

    def forward(self, x01: th.Tensor, cond: th.Tensor) -> th.Tensor:
        x0 = x01 * 2 - 1
        t = th.randint(0, self.timesteps, (len(x0),))
        noise = th.randn_like(x0)
        ab = self.alphas_bar[t][:, None, None]
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
        return F.mse_loss(self.model(xt, t, cond), noise)

    @th.no_grad()
    def sample(self, cond: th.Tensor) -> th.Tensor:
        x = th.randn(len(cond), 1, N_POINTS)
        for i in reversed(range(self.timesteps)):
            t = th.full((len(x),), i)
            ab = self.alphas_bar[i]
            ab_prev = self.alphas_bar[i - 1] if i > 0 else th.tensor(1.0)
            eps = self.model(x, t, cond)
            x0 = ((x - (1 - ab).sqrt() * eps) / ab.sqrt()).clamp(-1, 1)
            beta = self.betas[i]
            mean = (
                ab_prev.sqrt() * beta / (1 - ab) * x0
                + (1 - beta).sqrt() * (1 - ab_prev) / (1 - ab) * x
            )
            var = beta * (1 - ab_prev) / (1 - ab)
            x = mean + var.sqrt() * th.randn_like(x) if i > 0 else mean
        return (x + 1) / 2


def prepare_batch(
    designs: th.Tensor, normalizer: Normalizer, args: argparse.Namespace
) -> th.Tensor:
    designs_flat = designs.view(designs.shape[0], 1, -1)
    designs = normalizer.normalize(designs)
    if args.fixed:
        designs_flat = designs.view(designs.shape[0], 1, -1)
    return designs_flat


def train(diffusion, designs, loads, normalizer, args) -> None:
    optimizer = th.optim.AdamW(diffusion.parameters(), lr=args.lr)
    scheduler = th.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    gen = th.Generator().manual_seed(args.seed + 1)
    running = 0.0
    for step in range(args.steps):
        pick = th.randint(0, len(designs), (args.batch_size,), generator=gen)
        x = prepare_batch(designs[pick], normalizer, args)
        loss = diffusion(x, loads[pick])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(diffusion.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running = loss.item() if step == 0 else 0.95 * running + 0.05 * loss.item()
        if step % 50 == 0 or step == args.steps - 1:
            print(f"[step {step:4d}] loss {running:.4f}")


def generate(diffusion, normalizer, path: str, per_load: int = 12) -> None:
    loads = th.tensor([0.1, 0.5, 0.9]).repeat_interleave(per_load)[:, None]
    diffusion.eval()
    designs = normalizer.denormalize(diffusion.sample(loads)).squeeze(1)
    th.save({"load": loads, "designs": designs, "model": diffusion.state_dict()}, path)
    for load in (0.1, 0.5, 0.9):
        chosen = designs[(loads[:, 0] - load).abs() < 1e-6]
        print(
            f"load {load:.1f}: thickest point {chosen.amax(1).mean():.2f} mm "
            f"at {chosen.argmax(1).float().mean() / (N_POINTS - 1):.2f} of the chord, "
            f"mean thickness {chosen.mean():.2f} mm"
        )


def prove(designs: th.Tensor, normalizer: Normalizer, args) -> None:
    """Range of what the diffusion model is given during training."""
    x = prepare_batch(designs, normalizer, args)
    print(f"input range [{x.min():.3f}, {x.max():.3f}]")
    outside = x.min() < -1e-4 or x.max() > 1 + 1e-4
    print("fault shows:", "yes" if outside else "no")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--timesteps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    th.manual_seed(args.seed)
    designs, loads = make_designs(2000, th.Generator().manual_seed(args.seed))
    normalizer = Normalizer(designs)
    diffusion = GaussianDiffusion1D(Denoiser(), args.timesteps)
    train(diffusion, designs, loads, normalizer, args)
    with tempfile.TemporaryDirectory() as run_dir:
        generate(diffusion, normalizer, os.path.join(run_dir, "designs.pt"))
    if args.prove:
        prove(designs, normalizer, args)


if __name__ == "__main__":
    main()
