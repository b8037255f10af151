"""Wasserstein GAN with gradient penalty draws points of a spiral, by its arm. The
penalty is the gradient of a gradient; the critic's parameters are held fast while the
generator is trained. Samples come from a moving average of the generator.

    python penalty_spirals.py --steps 360
"""

import argparse
import math

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

ARMS = 3
NOISE = 6


def spiral(count, generator):
    arm = torch.randint(ARMS, (count,), generator=generator)
    along = torch.rand(count, generator=generator).sqrt()
    angle = 2.5 * along + arm * 2 * math.pi / ARMS
    points = torch.stack([along * angle.cos(), along * angle.sin()], dim=1)
    return points + 0.02 * torch.randn(count, 2, generator=generator), arm


class Generator(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.arm = nn.Embedding(ARMS, 4)
        self.net = nn.Sequential(
            nn.Linear(NOISE + 4, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 2),
        )

    def forward(self, noise, arm):
        return self.net(torch.cat([noise, self.arm(arm)], dim=1))


class Critic(nn.Module):
    """Scores points; the arm's projection is added."""

    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
        )
        self.score = nn.Linear(width, 1)
        self.arm = nn.Embedding(ARMS, width)

    def forward(self, points, arm):
        h = self.net(points)
        return self.score(h).squeeze(1) + (h * self.arm(arm)).mean(1)


def gradient_penalty(critic, real, fake, arm):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (gradient,) = torch.autograd.grad(
        critic(between, arm).sum(), between, create_graph=True
    )
    return ((gradient.norm(dim=1) - 1) ** 2).mean()


def distance(generator, data):
    """Mean distance from what is drawn to the nearest real point of its arm."""
    points, arm = data
    with torch.no_grad():
        drawn = generator(torch.randn(len(arm), NOISE), arm)
    far = torch.cdist(drawn, points) + 1e3 * (arm[:, None] != arm)
    return far.amin(1).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=360, help="of the critic")
    parser.add_argument("--critic-steps", type=int, default=4)
    parser.add_argument("--penalty", type=float, default=1.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(83)
    data = torch.Generator().manual_seed(84)
    generator, critic = Generator(), Critic()
    average = AveragedModel(generator, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=4e-3, betas=(0.0, 0.9))
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.0, 0.9))

    loss_g = torch.zeros(())
    for step in range(1, args.steps + 1):
        real, arm = spiral(64, data)
        with torch.no_grad():
            fake = generator(torch.randn(64, NOISE), arm)
        gap = critic(fake, arm).mean() - critic(real, arm).mean()
        loss_c = gap + args.penalty * gradient_penalty(critic, real, fake, arm)
        optimizer_c.zero_grad()
        loss_c.backward()
        optimizer_c.step()

        if step % args.critic_steps == 0:
            critic.requires_grad_(False)
            arm = torch.randint(ARMS, (64,))
            loss_g = -critic(generator(torch.randn(64, NOISE), arm), arm).mean()
            optimizer_g.zero_grad()
            loss_g.backward()
            optimizer_g.step()
            average.update_parameters(generator)
            critic.requires_grad_(True)
        if step % 36 == 0 or step == 1:
            print(
                f"step {step} loss {loss_c.item():.6f} generator {loss_g.item():.6f}",
                flush=True,
            )
    print(f"distance to the spiral {distance(average, spiral(300, data)):.4f}")


if __name__ == "__main__":
    main()
