"""A DCGAN on 32x32 images: two optimizers a step, weights set by `apply`, the same
noise shown again and again.

    python dcgan.py --steps 60
"""

import argparse
import time

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, IterableDataset

NOISE = 64


def weights_init(module):
    name = module.__class__.__name__
    if name.startswith("Conv"):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif name.startswith("BatchNorm"):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


class ImageGenerator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NOISE, 4 * width, 4, 1, 0, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.ReLU(True),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.main(noise)


class ImageCritic(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(4 * width, 1, 4, 1, 0, bias=False),
        )

    def forward(self, images):
        return self.main(images).view(-1)


class Blobs(IterableDataset):
    """Endless coloured blobs."""

    def __init__(self, seed):
        self.seed = seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        axis = torch.linspace(-1, 1, 32)
        while True:
            x, y, size = torch.rand(3, generator=generator).tolist()
            far = (axis[:, None] - 2 * y + 1) ** 2 + (axis - 2 * x + 1) ** 2
            blob = torch.exp(-far / (0.1 + 0.4 * size))
            colour = torch.rand(3, 1, 1, generator=generator)
            yield 2 * colour * blob - 1


def main(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    loader = DataLoader(Blobs(options.seed), batch_size=options.batch_size)
    generator, critic = ImageGenerator(options.width), ImageCritic(options.width)
    generator.apply(weights_init)
    critic.apply(weights_init)
    criterion = nn.BCEWithLogitsLoss()
    fixed_noise = torch.randn(16, NOISE, 1, 1)
    optimizer_d = optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_g = optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    times = [time.perf_counter()]
    for step, real in zip(range(options.steps), loader):
        # The critic: real images up, made ones down.
        critic.zero_grad()
        ones = torch.full((len(real),), 0.9)
        loss_real = criterion(critic(real), ones)
        loss_real.backward()
        fake = generator(torch.randn(len(real), NOISE, 1, 1))
        loss_fake = criterion(critic(fake.detach()), torch.zeros(len(real)))
        loss_fake.backward()
        optimizer_d.step()
        # The generator: what the critic takes for real.
        generator.zero_grad()
        loss_g = criterion(critic(fake), torch.ones(len(real)))
        loss_g.backward()
        optimizer_g.step()
        loss_d = (loss_real + loss_fake).item()
        print(f"step {step} loss {loss_d.hex()} {loss_g.item().hex()}", flush=True)
        if step % 20 == 19:
            with torch.no_grad():
                shown = generator(fixed_noise)
            print(f"shown {shown.mean():.6f} {shown.std():.6f}")
        times.append(time.perf_counter())
    if options.times:
        with open(options.times, "w") as file:
            file.writelines(f"{moment!r}\n" for moment in times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=999)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
