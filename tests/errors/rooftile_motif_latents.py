"""Latent space of rooftile stamps.

Stamps are binary 16x16 rubbings (rosettes, frames, bars, crosses, ...).  A small
convolutional VAE gives eight latent coordinates per stamp for the finds catalogue.
"""
import argparse
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SIDE = 16


def stamp(rng):
    yy, xx = np.mgrid[0:SIDE, 0:SIDE].astype(float)
    cy, cx = rng.uniform(5.5, 9.5, 2)
    radius = rng.uniform(3.0, 6.0)
    dy, dx = yy - cy, xx - cx
    far = np.hypot(dy, dx)
    kind = rng.integers(0, 5)
    if kind == 0:
        petals = rng.integers(3, 6)
        turn = rng.uniform(0, np.pi)
        picture = far < radius * (
            0.65 + 0.35 * np.cos(petals * np.arctan2(dy, dx) + turn)
        )
    elif kind == 1:
        box = np.maximum(abs(dy), abs(dx))
        picture = (box < radius) & (box > radius - 2)
    elif kind == 2:
        angle = rng.uniform(0, np.pi)
        picture = np.cos((dx * np.cos(angle) + dy * np.sin(angle)) * 1.5) > 0
        picture &= far < radius + 1
    elif kind == 3:
        picture = (abs(dy) < 1.3) | (abs(dx) < 1.3)
        picture &= far < radius + 1
    else:
        picture = (far < radius) & (far > radius - 1.8)
    worn = rng.random((SIDE, SIDE)) < 0.02
    return (picture ^ worn).astype(np.float32)


def make_finds(count, seed):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.stack([stamp(rng) for _ in range(count)])).unsqueeze(1)


class Encoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 12, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(12, 24, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(24 * 16, 96),
            nn.LeakyReLU(0.1),
        )
        self.mu = nn.Linear(96, latent)
        self.logvar = nn.Linear(96, latent)

    def forward(self, x):
        h = self.body(x)
        return self.mu(h), self.logvar(h).clamp(-8, 4)


class Decoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(latent, 96),
            nn.LeakyReLU(0.1),
            nn.Linear(96, 24 * 16),
            nn.LeakyReLU(0.1),
            nn.Unflatten(1, (24, 4, 4)),
            nn.ConvTranspose2d(24, 12, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(12, 1, 4, stride=2, padding=1),
        )

    def forward(self, z):
        return self.body(z)


class StampVAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.latent = latent
        self.encoder = Encoder(latent)
        self.decoder = Decoder(latent)

    def forward(self, x):
        mu, logvar = self.encoder(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(z), mu, logvar

    @torch.no_grad()
    def sample(self, count, generator):
        z = torch.randn(count, self.latent, generator=generator)
        return torch.sigmoid(self.decoder(z))


class Objective:
    def __init__(self, args):
        self.args = args

    def __call__(self, logits, x, mu, logvar):
        recon = F.binary_cross_entropy_with_logits(logits, x)
        if self.args.fixed:
            recon = recon * x[0].numel()
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(dim=1).mean()
        return recon, kl


class Averager:
    """Slow copy of the weights used for the catalogue plates."""

    def __init__(self, model, decay=0.98):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for key, value in model.state_dict().items():
            self.shadow[key].lerp_(value, 1 - self.decay)


@torch.no_grad()
def validate(model, finds, objective):
    model.eval()
    logits, mu, logvar = model(finds)
    recon, kl = objective(logits, finds, mu, logvar)
    model.train()
    return recon.item(), kl.item()


def run(args, out):
    train, valid = make_finds(1600, 31), make_finds(256, 32)
    model = StampVAE(args.latent)
    objective = Objective(args)
    averager = Averager(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.93)
    shuffle = torch.Generator().manual_seed(args.seed)
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for rows in torch.randperm(len(train), generator=shuffle).split(args.batch):
            x = train[rows]
            logits, mu, logvar = model(x)
            recon, kl = objective(logits, x, mu, logvar)
            loss = recon + kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            averager.update(model)
            total += loss.item() * len(rows)
        decay.step()
        recon, kl = validate(model, valid, objective)
        print(
            f"epoch {epoch:2d}: train {total / len(train):.4f}  "
            f"valid recon {recon:.4f}  kl {kl:.4f}"
        )
    model.load_state_dict(averager.shadow)
    plates = model.sample(16, torch.Generator().manual_seed(1))
    np.savez(out / "plates.npz", plates=plates.numpy())
    torch.save(averager.shadow, out / "stamp_vae.pt")
    return model, valid, objective


@torch.no_grad()
def prove(model, valid, objective):
    """Reconstruction term against log p(x|z) per stamp, and use of the latents."""
    model.eval()
    logits, mu, logvar = model(valid)
    recon, kl = objective(logits, valid, mu, logvar)
    nll = F.binary_cross_entropy_with_logits(logits, valid, reduction="none")
    per_stamp = nll.flatten(1).sum(1).mean().item()
    active = int((mu.var(0) > 0.02).sum())
    ratio = recon.item() / per_stamp
    print(f"recon / -log p(x|z): {ratio:.5f}  active latents {active}  kl {kl:.3f}")
    print("fault shows:", "yes" if ratio < 0.99 and active <= 2 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--latent", type=int, default=8)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        trained, held_out, objective = run(args, pathlib.Path(folder))
    if args.prove:
        prove(trained, held_out, objective)
