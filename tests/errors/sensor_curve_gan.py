"""Synthetic load curves for a battery test bench: 1-D GAN with an MLP generator.

We moved this from our old Keras code, so the naming follows it (generator, critic, stacked).
"""
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class GanSettings:
    points: int = 64
    latent: int = 16
    width: int = 128
    batch_size: int = 64
    lr: float = 5e-4
    instance_noise: float = 0.1
    seed: int = 77


def bench_curves(n, s):
    rng = np.random.default_rng(s.seed)
    t = np.linspace(0, 1, s.points)
    start = rng.uniform(0.1, 0.4, (n, 1))
    width = rng.uniform(0.15, 0.5, (n, 1))
    height = rng.uniform(0.4, 1.0, (n, 1))
    ramp = 1 / (1 + np.exp(-(t - start) * 40))
    fall = np.exp(-np.clip(t - start - width, 0, None) * rng.uniform(4, 10, (n, 1)))
    ripple = 0.05 * np.sin(
        2 * np.pi * (t * rng.integers(4, 9, (n, 1)) + rng.uniform(0, 1, (n, 1)))
    )
    return torch.tensor(height * ramp * fall + ripple * ramp, dtype=torch.float32)


def build_generator(s):
    return nn.Sequential(
        nn.Linear(s.latent, s.width),
        nn.LayerNorm(s.width),
        nn.ReLU(),
        nn.Linear(s.width, s.width),
        nn.LayerNorm(s.width),
        nn.ReLU(),
        nn.Linear(s.width, s.points),
    )


def build_critic(s):
    return nn.Sequential(
        nn.Unflatten(1, (1, s.points)),
        nn.Conv1d(1, 16, 5, 2, 2),
        nn.LeakyReLU(0.2),
        nn.Conv1d(16, 32, 5, 2, 2),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(32 * s.points // 4, 64),
        nn.LeakyReLU(0.2),
        nn.Linear(64, 1),
    )


class CurveGAN:
    def __init__(self, settings, args):
        self.s = settings
        self.generator = build_generator(settings)
        self.critic = build_critic(settings)
        self.stacked = nn.Sequential(self.generator, self.critic)
        trained = self.stacked.parameters()
        if args.fixed:
            trained = self.generator.parameters()
        self.opt_critic = torch.optim.Adam(
            self.critic.parameters(), lr=settings.lr, betas=(0.5, 0.99)
        )
        self.opt_gen = torch.optim.Adam(trained, lr=settings.lr, betas=(0.5, 0.99))

    def latent(self):
        return torch.randn(self.s.batch_size, self.s.latent)

    def noisy(self, x):
        return x + self.s.instance_noise * torch.randn_like(x)

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.generator(self.latent())
        p_real = self.critic(self.noisy(real))
        p_fake = self.critic(self.noisy(fake))
        loss = F.binary_cross_entropy_with_logits(
            p_real, torch.full_like(p_real, 0.9)
        ) + F.binary_cross_entropy_with_logits(p_fake, torch.zeros_like(p_fake))
        self.opt_critic.zero_grad()
        loss.backward()
        self.opt_critic.step()
        return loss.item()

    def generator_step(self):
        p = self.stacked(self.latent())
        loss = F.binary_cross_entropy_with_logits(p, torch.ones_like(p))
        self.opt_gen.zero_grad()
        loss.backward()
        self.opt_gen.step()
        return loss.item()

    @torch.no_grad()
    def statistics_gap(self, data, n=1000):
        x = self.generator(torch.randn(n, self.s.latent))
        return (
            (x.mean(0) - data.mean(0)).abs().mean()
            + (x.std(0) - data.std(0)).abs().mean()
        ).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--steps",
        type=int,
        default=300,
        help="rounds, each with one critic and one generator update",
    )
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    s = GanSettings()
    torch.manual_seed(s.seed)
    data = bench_curves(3000, s)
    gan = CurveGAN(s, args)
    changed = 0

    for step in range(args.steps):
        real = data[torch.randint(0, len(data), (s.batch_size,))]
        d = gan.critic_step(real)
        before = gan.critic[-1].weight.detach().clone() if args.prove else None
        g = gan.generator_step()
        if args.prove:
            changed += int(not torch.equal(before, gan.critic[-1].weight))
        if (step + 1) % 50 == 0:
            print(
                f"round {step + 1:4d} critic {d:.3f} generator {g:.3f} gap {gan.statistics_gap(data):.4f}"
            )

    curves = gan.generator(torch.randn(5, s.latent)).detach()
    print("peak of five samples:", [round(v, 2) for v in curves.max(1).values.tolist()])
    if args.prove:
        print("fault shows:", "yes" if changed else "no")


if __name__ == "__main__":
    main()
