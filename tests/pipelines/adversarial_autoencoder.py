"""Adversarial autoencoder of handwriting-like strokes: three optimizers and three
losses (reconstruction; a discriminator with spectral norm that tells codes from a
prior; the encoder that fools it). Samples of the prior are decoded at the end.

    python adversarial_autoencoder.py --steps 150
"""

import argparse

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm

POINTS, CODE = 24, 4


def strokes(n, generator):
    """Curves of two random harmonics, as (x, y) at equal times."""
    t = torch.linspace(0, 2 * torch.pi, POINTS)
    a = torch.randn(n, 4, 1, generator=generator)
    x = a[:, 0] * torch.cos(t) + 0.4 * a[:, 1] * torch.cos(2 * t)
    y = a[:, 2] * torch.sin(t) + 0.4 * a[:, 3] * torch.sin(2 * t)
    curve = torch.stack([x, y], dim=1)
    return curve + 0.02 * torch.randn(curve.shape, generator=generator)


class StrokeEncoder(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Conv1d(2, channels, 5, padding=2, padding_mode="circular"),
                nn.Conv1d(channels, channels, 5, stride=2, padding=2),
            ]
        )
        self.code = nn.Linear(channels * POINTS // 2, CODE)

    def forward(self, curve):
        for conv in self.convs:
            curve = nn.functional.silu(conv(curve))
        return self.code(curve.flatten(1))


class StrokeDecoder(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(CODE, hidden), nn.SiLU(), nn.Linear(hidden, 2 * POINTS)
        )

    def forward(self, code):
        return self.mlp(code).view(-1, 2, POINTS)


def code_discriminator(hidden=48):
    return nn.Sequential(
        spectral_norm(nn.Linear(CODE, hidden)),
        nn.LeakyReLU(0.2),
        spectral_norm(nn.Linear(hidden, hidden)),
        nn.LeakyReLU(0.2),
        spectral_norm(nn.Linear(hidden, 1)),
    )


class AdversarialAutoencoder:
    def __init__(self, lr):
        self.encoder, self.decoder = StrokeEncoder(), StrokeDecoder()
        self.discriminator = code_discriminator()
        both = [*self.encoder.parameters(), *self.decoder.parameters()]
        self.reconstruct_opt = torch.optim.Adam(both, lr=lr)
        self.discriminate_opt = torch.optim.Adam(
            self.discriminator.parameters(), lr=lr, betas=(0.5, 0.999)
        )
        self.fool_opt = torch.optim.SGD(self.encoder.parameters(), lr=lr)
        self.bce = nn.BCEWithLogitsLoss()

    def discriminate(self, code, target):
        logits = self.discriminator(code)
        return self.bce(logits, torch.full_like(logits, target))

    def reconstruction_phase(self, curve):
        loss = nn.functional.mse_loss(self.decoder(self.encoder(curve)), curve)
        self.reconstruct_opt.zero_grad()
        loss.backward()
        self.reconstruct_opt.step()
        return loss.item()

    def regularisation_phase(self, curve):
        prior, code = torch.randn(len(curve), CODE), self.encoder(curve).detach()
        told = 0.5 * (self.discriminate(prior, 1.0) + self.discriminate(code, 0.0))
        self.discriminate_opt.zero_grad()
        told.backward()
        self.discriminate_opt.step()

        self.discriminator.requires_grad_(False)
        fooled = self.discriminate(self.encoder(curve), 1.0)
        self.fool_opt.zero_grad()
        fooled.backward()
        self.fool_opt.step()
        self.discriminator.requires_grad_(True)
        return told.item(), fooled.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(90)
    generator = torch.Generator().manual_seed(91)

    aae = AdversarialAutoencoder(args.lr)
    for step in range(args.steps):
        curve = strokes(args.batch_size, generator)
        reconstruction = aae.reconstruction_phase(curve)
        told, fooled = aae.regularisation_phase(curve)
        if step % 15 == 0 or step == args.steps - 1:
            print(
                f"step {step} loss {reconstruction:.6f} discriminator {told:.6f} "
                f"encoder {fooled:.6f}",
                flush=True,
            )
    with torch.no_grad():
        codes = aae.encoder(strokes(500, generator))
        drawn = aae.decoder(torch.randn(500, CODE))
    print(f"codes: mean {codes.mean():.4f} deviation {codes.std(0).mean():.4f}")
    print(f"drawn: mean {drawn.mean():.4f} deviation {drawn.std(0).mean():.4f}")


if __name__ == "__main__":
    main()
