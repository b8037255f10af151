"""WGAN-40: the gradient penalty takes the norm of each pixel instead of each image.

Source: https://github.com/Zeleni9/pytorch-wgan/issues/40. The critic's gradients are
[batch, 1, height, width], and norm(2, dim=1) goes over the one channel: the penalty
pulls the slope at every single pixel to one, and the norm of an image's gradient to
the square root of the number of pixels. --fixed flattens the gradients first.
"""

import argparse

import torch
from torch import autograd, nn, optim

SIZE, LATENT, LAMBDA, N_CRITIC = 8, 6, 10.0, 2

arguments = argparse.ArgumentParser()
arguments.add_argument("--fixed", action="store_true")
arguments.add_argument("--prove", action="store_true")
arguments.add_argument("--steps", type=int, default=8, help="of the generator")


def make_critic():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(12, 24, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(24 * 4, 1),
    )


def make_generator():
    return nn.Sequential(
        nn.Linear(LATENT, 24 * 4),
        nn.Unflatten(1, (24, 2, 2)),
        nn.ReLU(),
        nn.ConvTranspose2d(24, 12, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(12, 1, 4, 2, 1),
        nn.Tanh(),
    )


def strokes(count, generator):
    """White bars on black, upright or lying."""
    images = torch.full((count, 1, SIZE, SIZE), -1.0)
    place = torch.randint(1, SIZE - 1, (count,), generator=generator).tolist()
    lying = (torch.rand(count, generator=generator) < 0.5).tolist()
    for i in range(count):
        if lying[i]:
            images[i, 0, place[i]] = 1.0
        else:
            images[i, 0, :, place[i]] = 1.0
    return images


class WGAN_GP:
    def __init__(self, per_image):
        self.per_image = per_image
        self.G, self.D = make_generator(), make_critic()
        self.g_optimizer = optim.Adam(self.G.parameters(), lr=3e-3, betas=(0.5, 0.9))
        self.d_optimizer = optim.Adam(self.D.parameters(), lr=3e-3, betas=(0.5, 0.9))
        self.draw = torch.Generator().manual_seed(77)

    def noise(self, count):
        return torch.randn(count, LATENT, generator=self.draw)

    def calculate_gradient_penalty(self, real, fake):
        eta = torch.rand(len(real), 1, 1, 1, generator=self.draw)
        between = (eta * real + (1 - eta) * fake).requires_grad_(True)
        score = self.D(between)
        (gradients,) = autograd.grad(
            score, between, torch.ones_like(score), create_graph=True
        )
        if self.per_image:
            norm = gradients.flatten(1).norm(2, dim=1)
        else:
            norm = gradients.norm(2, dim=1)
        return ((norm - 1) ** 2).mean() * LAMBDA, gradients.detach()

    def critic_step(self, real):
        fake = self.G(self.noise(len(real))).detach()
        wasserstein = self.D(fake).mean() - self.D(real).mean()
        penalty, slope = self.calculate_gradient_penalty(real, fake)
        self.d_optimizer.zero_grad()
        (wasserstein + penalty).backward()
        self.d_optimizer.step()
        return wasserstein.item(), penalty.item(), slope

    def generator_step(self, count):
        self.D.requires_grad_(False)
        g_loss = -self.D(self.G(self.noise(count))).mean()
        self.g_optimizer.zero_grad()
        g_loss.backward()
        self.g_optimizer.step()
        self.D.requires_grad_(True)
        return g_loss.item()


def run(opt):
    torch.set_num_threads(1)
    torch.manual_seed(11)
    gan = WGAN_GP(per_image=opt.fixed)
    data = torch.Generator().manual_seed(12)
    differs = False
    for iteration in range(opt.steps):
        for _ in range(N_CRITIC):
            distance, penalty, slope = gan.critic_step(strokes(24, data))
            norms = slope.flatten(1).square().sum(1).sqrt()
            expected = LAMBDA * (norms - 1).square().mean().item()
            differs = differs or abs(expected - penalty) > 1e-3
        g_loss = gan.generator_step(24)
        print(
            f"iteration {iteration} W {-distance:+.3f} gp {penalty:.3f} "
            f"slope {norms.mean():.3f} g {g_loss:+.3f}",
            flush=True,
        )
    if opt.prove:
        print("fault shows: " + ("yes" if differs else "no"))


run(arguments.parse_args())
