"""A conditional GAN makes spectrograms of a room's decay from a picture of it.

After nikhilsinghmus/image2reverb, issue 37.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE, BANDS, FRAMES = 8, 8, 16


class Rooms(Dataset):
    """The gradient of a picture tells how slowly its noisy spectrogram decays."""

    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        decay = torch.rand(count, generator=gen)
        ramp = torch.linspace(-1, 1, SIZE)
        noise = 0.1 * torch.randn(count, SIZE, SIZE, generator=gen)
        self.images = decay[:, None, None] * ramp[None, None] + noise
        time = torch.arange(FRAMES) / FRAMES
        level = torch.exp(-time[None] * (2 + 6 * (1 - decay[:, None])))
        texture = torch.randn(count, BANDS, FRAMES, generator=gen).abs()
        self.specs = (level[:, None] * (0.4 + 0.6 * texture)).clamp(0, 2) - 1

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.specs[index]


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(SIZE * SIZE, 32), nn.ReLU(), nn.Linear(32, dim)
        )

    def forward(self, x):
        return self.net(x)


class Generator(nn.Module):
    def __init__(self, dim=16, noise=8):
        super().__init__()
        self.noise = noise
        self.fc = nn.Linear(dim + noise, 16 * 2 * 4)
        self.net = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
            nn.Upsample(scale_factor=2), nn.Conv2d(16, 8, 3, padding=1), nn.ReLU(),
            nn.Conv2d(8, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, features):
        z = torch.cat([features, torch.randn(len(features), self.noise)], 1)
        return self.net(F.relu(self.fc(z)).view(-1, 16, 2, 4)).squeeze(1).tanh()


class Discriminator(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(),
        )  # fmt: skip
        self.out = nn.Linear(16 * 2 * 4 + dim, 1)

    def forward(self, spec, features):
        return self.out(torch.cat([self.conv(spec[:, None]), features], 1))


def texture(specs):
    return specs[:, :, :6].diff(dim=1).abs().mean().item()


class Image2Reverb:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.args = args
        self.enc, self.g, self.d = Encoder(), Generator(), Discriminator()
        makers = [*self.enc.parameters(), *self.g.parameters()]
        self.g_opt = torch.optim.Adam(makers, lr=args.g_lr, betas=(0.5, 0.999))
        self.d_opt = torch.optim.Adam(
            self.d.parameters(), lr=args.d_lr, betas=(0.5, 0.999)
        )

    def adversarial_loss(self, fake_spec, f):
        d_fake = self.d(fake_spec.detach(), f)
        return F.mse_loss(d_fake, torch.ones_like(d_fake))

    def generator_step(self, images, specs):
        f = self.enc(images)
        fake_spec = self.g(f)
        g_loss1 = self.adversarial_loss(fake_spec, f.detach())
        g_loss2 = F.l1_loss(fake_spec, specs)
        loss = g_loss1 + self.args.lambda_l1 * g_loss2
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        return g_loss1.item(), g_loss2.item()

    def discriminator_step(self, images, specs):
        f = self.enc(images).detach()
        d_fake, d_real = self.d(self.g(f).detach(), f), self.d(specs, f)
        fake_loss = F.mse_loss(d_fake, torch.zeros_like(d_fake))
        loss = 0.5 * (fake_loss + F.mse_loss(d_real, torch.ones_like(d_real)))
        self.d_opt.zero_grad()
        loss.backward()
        self.d_opt.step()
        return loss.item(), d_real.mean().item()

    def fit(self):
        loader = DataLoader(Rooms(512, 1), self.args.batch_size, shuffle=True)
        step = 0
        for epoch in range(self.args.epochs):
            for images, specs in loader:
                g_loss1, g_loss2 = self.generator_step(images, specs)
                d_loss, d_real = self.discriminator_step(images, specs)
                step += 1
            print(
                f"epoch {epoch} step {step} G1 {g_loss1:.3f} G2 {g_loss2:.3f} "
                f"D {d_loss:.3f} D(real) {d_real:.3f}",
                flush=True,
            )
        held = Rooms(128, 2)
        print(
            f"texture of generated spectrograms {self.texture(held):.4f}, "
            f"of real ones {texture(held.specs):.4f}",
            flush=True,
        )

    @torch.no_grad()
    def texture(self, rooms):
        return texture(self.g(self.enc(rooms.images)))


class AdversarialImage2Reverb(Image2Reverb):
    def adversarial_loss(self, fake_spec, f):
        d_fake = self.d(fake_spec, f)
        return F.mse_loss(d_fake, torch.ones_like(d_fake))


def adversarial_gradient(model):
    """The norm of what the adversarial loss alone gives to the generator."""
    model.g.zero_grad()
    f = model.enc(Rooms(32, 3).images)
    model.adversarial_loss(model.g(f), f.detach()).backward()
    grads = [p.grad for p in model.g.parameters() if p.grad is not None]
    return sum(grad.norm().item() for grad in grads)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--g-lr", type=float, default=2e-3)
    parser.add_argument("--d-lr", type=float, default=1e-3)
    parser.add_argument("--lambda-l1", type=float, default=1.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = (AdversarialImage2Reverb if args.fixed else Image2Reverb)(args)
    model.fit()
    if args.prove:
        norm = adversarial_gradient(model)
        print(f"gradient of the adversarial loss in the generator {norm:.6f}")
        print("fault shows:", "yes" if norm == 0 else "no", flush=True)


if __name__ == "__main__":
    main()
