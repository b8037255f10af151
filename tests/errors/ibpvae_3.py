"""Trains a variational autoencoder of gusts: curves of wind speed.

After ibp_vae, issue 3.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

POINTS, LATENT = 40, 4


class GustVAE(nn.Module):
    def __init__(self, half, width=64):
        super().__init__()
        self.half = half
        self.encoder = nn.Sequential(
            nn.Linear(POINTS, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.mu, self.logvar = nn.Linear(width, LATENT), nn.Linear(width, LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, POINTS),
        )  # fmt: skip

    def reparametrize(self, mu, logvar):
        noise = torch.randn_like(mu)
        if self.half:
            return mu + noise * (0.5 * logvar).exp()
        return mu + noise * logvar.exp()

    def encode(self, gust):
        hidden = self.encoder(gust)
        return self.mu(hidden), self.logvar(hidden)

    def forward(self, gust):
        mu, logvar = self.encode(gust)
        return self.decoder(self.reparametrize(mu, logvar)), mu, logvar


def gusts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    height, place, width = torch.rand(3, count, 1, generator=generator)
    time = torch.linspace(0, 1, POINTS)
    curve = (0.5 + height) * torch.exp(
        -(((time - 0.2 - 0.6 * place) / (0.08 + 0.15 * width)) ** 2)
    )
    return curve + 0.1 * torch.randn(count, POINTS, generator=generator)


def losses(model, gust, noise=0.15):
    """Reconstruction and divergence from the prior, in nats for a gust."""
    guess, mu, logvar = model(gust)
    error = F.mse_loss(guess, gust, reduction="sum") / (2 * noise**2)
    divergence = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum()
    return error / len(gust), divergence / len(gust)


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    return sum(losses(model, data)).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = gusts(2048, args.seed), gusts(512, args.seed + 1)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    model = GustVAE(half=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for gust in loader:
            error, divergence = losses(model, gust)
            loss = error + divergence
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} bound {evaluate(model, valid):.4f}", flush=True)
    if args.prove:
        with torch.no_grad():
            mu, logvar = (part[:, None] for part in model.encode(valid[:32]))
            mu, logvar = (part.expand(-1, 2000, -1) for part in (mu, logvar))
            drawn = model.reparametrize(mu, logvar).std(1)
        ratio = (drawn / (0.5 * logvar[:, 0]).exp()).log().abs().max().exp().item()
        print(f"drawn and stated deviation differ by a factor of up to {ratio:.3f}")
        print("fault shows:", "yes" if ratio > 1.2 else "no", flush=True)


if __name__ == "__main__":
    main()
