"""GAN of glowing embers: non-saturating loss, R1 on real pictures in every fourth step.

The lazy penalty has a step of its own (a second backward through the first, then the
optimizer, with beta1 = 0). The generator is averaged by AveragedModel with a decay that
warms up; pictures are drawn with the average, whose BatchNorm statistics are copied.
Losses hover: they are not to fall. A distance of moments is what improves.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel

SIZE, NOISE = 8, 12


def embers(n, gen):
    """A glow whose width and place depend on one another."""
    heat = torch.rand(n, 1, 1, generator=gen)
    grid = torch.linspace(-1, 1, SIZE)
    x = grid[None, None, :] - 0.6 * (heat - 0.5)
    y = grid[None, :, None] + 0.4 * torch.randn(n, 1, 1, generator=gen).clamp(-1, 1)
    return (1.6 * torch.exp(-(x**2 + y**2) / (0.1 + 0.3 * heat)) - 0.8)[:, None]


class Generator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(NOISE, width * 4)
        self.net = nn.Sequential(
            nn.Unflatten(1, (width, 2, 2)),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(width, 1, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(self.first(z))


class Critic(nn.Sequential):
    def __init__(self, width=24):
        super().__init__(
            nn.Conv2d(1, width, 3, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * width * 16, 1),
        )


def moments(x):
    flat = x.flatten(1)
    return torch.cat([flat.mean(0), flat.std(0)])


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=240)
    args = p.parse_args()
    torch.manual_seed(44)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(6)
    wanted = moments(embers(2000, gen))
    generator, critic = Generator(), Critic()

    def blend(mean, new, count):
        decay = torch.clamp((1 + count) / (10 + count), max=0.98)
        return mean * decay + new * (1 - decay)

    average = AveragedModel(generator, avg_fn=blend)
    for q in average.parameters():
        q.requires_grad_(False)
    g_opt = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.0, 0.99))
    d_opt = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.99))
    test_noise = torch.randn(500, NOISE, generator=gen)
    penalty = torch.zeros(())
    for step in range(args.steps):
        real = embers(48, gen)
        with torch.no_grad():
            fake = generator(torch.randn(48, NOISE))
        d_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
        if step % 4 == 0:
            real = real.requires_grad_()
            (slope,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
            penalty = slope.square().sum((1, 2, 3)).mean()
            d_opt.zero_grad()
            (0.5 * 0.5 * 4 * penalty).backward()
            d_opt.step()

        critic.requires_grad_(False)
        g_loss = F.softplus(-critic(generator(torch.randn(48, NOISE)))).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        critic.requires_grad_(True)
        average.update_parameters(generator)
        if step % 40 == 39 or step == args.steps - 1:
            for mean, now in zip(average.module.buffers(), generator.buffers()):
                mean.copy_(now)
            average.eval()
            with torch.no_grad():
                off = (moments(average(test_noise)) - wanted).abs().mean()
            average.train()
            print(
                f"step {step + 1:3d} critic {d_loss.item():.3f} generator "
                f"{g_loss.item():.3f} r1 {penalty.item():.3f} moments {off:.4f}"
            )


if __name__ == "__main__":
    main()
