"""Variational autoencoder for single heart beats (synthetic ECG windows)."""
import argparse
from typing import Dict, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


def synth_beats(n: int, length: int, seed: int) -> Tensor:
    """P wave, QRS complex and T wave with varying position, width and height; baseline drift and sensor noise."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, length)[None]

    def bump(center, width, height):
        return height * np.exp(-0.5 * ((t - center) / width) ** 2)

    u = lambda lo, hi: rng.uniform(lo, hi, (n, 1))
    shift = u(-0.06, 0.06)
    p = bump(0.25 + shift, u(0.02, 0.04), u(0.05, 0.3))
    q = bump(0.42 + shift, 0.012, -u(0.05, 0.25))
    r = bump(0.46 + shift, u(0.012, 0.022), u(0.8, 1.4))
    s = bump(0.50 + shift, 0.014, -u(0.1, 0.4))
    tw = bump(0.70 + shift + u(-0.03, 0.03), u(0.04, 0.08), u(0.1, 0.5))
    drift = u(-0.1, 0.1) * np.sin(2 * np.pi * (t + u(0, 1)))
    x = p + q + r + s + tw + drift + 0.01 * rng.normal(size=(n, length))
    return torch.from_numpy((x / 0.35).astype(np.float32))


class Encoder(nn.Module):
    def __init__(self, length: int, dim: int):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * length // 4, dim),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x[:, None])


class Decoder(nn.Module):
    def __init__(self, latent: int, length: int, dim: int):
        super().__init__()
        self.length = length
        self.lin = nn.Sequential(
            nn.Linear(latent, dim),
            nn.ReLU(),
            nn.Linear(dim, 32 * length // 4),
            nn.ReLU(),
        )
        self.conv = nn.Sequential(
            nn.ConvTranspose1d(32, 16, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose1d(16, 1, 4, 2, 1),
        )

    def forward(self, z: Tensor) -> Tensor:
        return self.conv(self.lin(z).view(len(z), 32, self.length // 4)).squeeze(1)


class VAE(nn.Module):
    """Gaussian VAE.

    Args:
        length: samples per window
        latent_dim: size of the code
        kl_coeff: factor of the KL term in the training loss
        lr: learning rate
    """

    def __init__(
        self,
        length: int,
        latent_dim: int = 8,
        enc_dim: int = 64,
        kl_coeff: float = 0.02,
        lr: float = 1e-3,
        fixed: bool = False,
    ):
        super().__init__()
        self.latent_dim = latent_dim
        self.kl_coeff = kl_coeff
        self.lr = lr
        self.fixed = fixed
        self.encoder = Encoder(length, enc_dim)
        self.fc_mu = nn.Linear(enc_dim, latent_dim)
        self.fc_var = nn.Linear(enc_dim, latent_dim)
        self.decoder = Decoder(latent_dim, length, enc_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.fc_mu(self.encoder(x)))

    def _run_step(self, x: Tensor):
        h = self.encoder(x)
        mu, log_var = self.fc_mu(h), self.fc_var(h)
        q = torch.distributions.Normal(mu, torch.exp(log_var / 2))
        p = torch.distributions.Normal(torch.zeros_like(mu), torch.ones_like(mu))
        z = q.rsample()
        return z, self.decoder(z), p, q

    def step(self, x: Tensor) -> Tuple[Tensor, Dict[str, float]]:
        z, x_hat, p, q = self._run_step(x)
        recon_loss = F.mse_loss(x_hat, x, reduction="mean")
        kl = torch.distributions.kl_divergence(q, p).mean()
        loss = recon_loss + (self.kl_coeff * kl if self.fixed else kl)
        return loss, {
            "recon_loss": recon_loss.item(),
            "kl": kl.item(),
            "loss": loss.item(),
        }

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Averages:
    def __init__(self):
        self.total, self.n = {}, 0

    def add(self, logs):
        self.n += 1
        for k, v in logs.items():
            self.total[k] = self.total.get(k, 0.0) + v

    def __str__(self):
        return "  ".join(f"{k} {v / self.n:.4f}" for k, v in self.total.items())


@torch.no_grad()
def evaluate(model: VAE, x: Tensor) -> Dict[str, float]:
    model.eval()
    mu = model.fc_mu(model.encoder(x))
    out = {
        "mse": F.mse_loss(model(x), x).item(),
        "variance explained": 1 - (F.mse_loss(model(x), x) / x.var(0).mean()).item(),
        "active units": float((mu.var(0) > 0.02).sum()),
    }
    fake = model.decoder(torch.randn(256, model.latent_dim))
    out["sample spread / data spread"] = (fake.std(0).mean() / x.std(0).mean()).item()
    model.train()
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch_size", type=int, default=64)
    ap.add_argument("--length", type=int, default=64)
    ap.add_argument("--latent_dim", type=int, default=8)
    ap.add_argument("--kl_coeff", type=float, default=0.02)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=31)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    data = TensorDataset(synth_beats(1500, args.length, args.seed))
    train, val = random_split(data, [1244, 256])
    x_val = torch.stack([v[0] for v in val])
    model = VAE(
        args.length,
        args.latent_dim,
        kl_coeff=args.kl_coeff,
        lr=args.lr,
        fixed=args.fixed,
    )
    optimizer = model.configure_optimizers()

    ratios = []
    for epoch in range(args.epochs):
        avg = Averages()
        for (x,) in DataLoader(train, batch_size=args.batch_size, shuffle=True):
            loss, logs = model.step(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            avg.add(logs)
            ratios.append((logs["loss"] - logs["recon_loss"]) / max(logs["kl"], 1e-12))
        if epoch % 2 == 1:
            print(f"epoch {epoch + 1:2d}  {avg}")

    print(
        "validation: "
        + "  ".join(f"{k} {v:.3f}" for k, v in evaluate(model, x_val).items())
    )
    if args.prove:
        used = float(np.median(ratios))
        print(
            f"factor of the KL term over the run {used:.4f}, asked for {args.kl_coeff}"
        )
        print(
            "fault shows:",
            "yes" if abs(used - args.kl_coeff) > 0.05 * args.kl_coeff else "no",
        )


if __name__ == "__main__":
    main()
