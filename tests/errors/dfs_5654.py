"""Trains a small diffusion model that predicts velocities, with weights by noise level.

The data are made-up waves of sixteen values. The loss of each sample is weighted by its
signal-to-noise ratio, which is cut off at --snr_gamma.
"""

import argparse

import torch
from torch import nn


class Schedule:
    def __init__(self, steps=200):
        betas = torch.linspace(1e-4, 0.05, steps)
        self.alphas_cumprod = (1 - betas).cumprod(0)
        self.steps = steps

    def parts(self, t):
        a = self.alphas_cumprod[t][:, None]
        return a.sqrt(), (1 - a).sqrt()

    def add_noise(self, x, noise, t):
        alpha, sigma = self.parts(t)
        return alpha * x + sigma * noise

    def get_velocity(self, x, noise, t):
        alpha, sigma = self.parts(t)
        return alpha * noise - sigma * x

    def snr(self, t):
        a = self.alphas_cumprod[t]
        return a / (1 - a)


class Denoiser(nn.Module):
    def __init__(self, size=16, width=96):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU())
        self.enter = nn.Linear(size, width)
        self.body = nn.Sequential(
            nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, size)
        )

    def forward(self, x, t):
        waves = t[:, None] / 200 * 2.0 ** torch.arange(4)
        return self.body(
            self.enter(x) + self.time(torch.cat([waves.sin(), waves.cos()], 1))
        )


def waves(count, size=16):
    phase = 6.28 * torch.rand(count, 1)
    pitch = 0.4 + 0.4 * torch.rand(count, 1)
    return torch.sin(phase + pitch * torch.arange(size))


def snr_weights(snr, gamma, fixed):
    cap = gamma * torch.ones_like(snr)
    if fixed:
        return torch.minimum(snr, cap) / (snr + 1)
    # Velocity objective needs one to be added to the ratios.
    snr = snr + 1
    return torch.minimum(snr, cap) / snr


class Trainer:
    def __init__(self, gamma, fixed):
        self.gamma = gamma
        self.fixed = fixed
        self.schedule = Schedule()
        self.model = Denoiser()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def batch(self, count=64):
        x = waves(count)
        return x, torch.randn_like(x), torch.randint(self.schedule.steps, (count,))

    def loss(self, x, noise, t):
        noisy = self.schedule.add_noise(x, noise, t)
        target = self.schedule.get_velocity(x, noise, t)
        weights = snr_weights(self.schedule.snr(t), self.gamma, self.fixed)
        each = (self.model(noisy, t) - target).square().mean(1)
        return (weights * each).mean()

    @torch.no_grad()
    def loss_of_pictures(self, x, noise, t):
        """The same objective, written as the error of the clean data."""
        alpha, sigma = self.schedule.parts(t)
        noisy = self.schedule.add_noise(x, noise, t)
        clean = alpha * noisy - sigma * self.model(noisy, t)
        weights = self.schedule.snr(t).clamp(max=self.gamma)
        return (weights * (clean - x).square().mean(1)).mean()

    def step(self):
        loss = self.loss(*self.batch())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=50)
    cli.add_argument("--snr_gamma", type=float, default=5.0)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = Trainer(options.snr_gamma, options.fixed)
    for step in range(options.steps):
        print(f"step {step} loss {trainer.step():.4f}", flush=True)
    if options.prove:
        batch = trainer.batch(512)
        ours = trainer.loss(*batch).item()
        meant = trainer.loss_of_pictures(*batch).item()
        print("fault shows:", "yes" if abs(ours - meant) > 0.01 * meant else "no")


if __name__ == "__main__":
    main()
