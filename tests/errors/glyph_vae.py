"""VAE on small stroke glyphs (12x12, binary-ish)."""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    steps: int = 500
    batch: int = 64
    lr: float = 2e-3
    latent: int = 8
    hidden: int = 128
    beta: float = 1.0
    seed: int = 19
    fixed: bool = False
    prove: bool = False


SIDE = 12


def glyphs(n, seed):
    g = torch.Generator().manual_seed(seed)
    grid = torch.arange(SIDE).float()
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    img = torch.zeros(n, SIDE, SIDE)
    row = 2 + 8 * torch.rand(n, 1, 1, generator=g)
    col = 2 + 8 * torch.rand(n, 1, 1, generator=g)
    slope = torch.randn(n, 1, 1, generator=g) * 0.5
    horizontal = torch.sigmoid(4 * (1.0 - (yy - row - slope * (xx - 6)).abs()))
    vertical = torch.sigmoid(4 * (1.0 - (xx - col + slope * (yy - 6)).abs()))
    img = torch.maximum(horizontal, vertical)
    return (img > 0.5).float().flatten(1)


class GlyphVAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = SIDE * SIDE
        self.fixed = cfg.fixed
        self.enc = nn.Sequential(
            nn.Linear(d, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
        )
        self.to_mu = nn.Linear(cfg.hidden, cfg.latent)
        self.to_logvar = nn.Linear(cfg.hidden, cfg.latent)
        self.dec = nn.Sequential(
            nn.Linear(cfg.latent, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, d),
        )

    def encode(self, x):
        h = self.enc(x)
        return self.to_mu(h), self.to_logvar(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar) if self.fixed else torch.exp(logvar)
        return mu + std * torch.randn_like(std)

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.dec(self.reparameterize(mu, logvar)), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)
    return rec.mean(), kl.mean()


@torch.no_grad()
def report(model, x):
    model.eval()
    rec, kl = elbo_terms(*_pack(model, x))
    z = torch.randn(500, model.to_mu.out_features)
    samples = torch.sigmoid(model.dec(z))
    nearest = torch.cdist(samples, x, p=1).min(1).values.mean()
    model.train()
    return rec.item(), kl.item(), nearest.item()


def _pack(model, x):
    logits, mu, logvar = model(x)
    return logits, x, mu, logvar


def train(cfg):
    torch.manual_seed(cfg.seed)
    data, held = glyphs(3000, 1), glyphs(1000, 2)
    model = GlyphVAE(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    gen = torch.Generator().manual_seed(cfg.seed)
    for step in range(1, cfg.steps + 1):
        x = data[torch.randint(0, len(data), (cfg.batch,), generator=gen)]
        rec, kl = elbo_terms(*_pack(model, x))
        beta = cfg.beta * min(1.0, step / (0.3 * cfg.steps))
        loss = rec + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0 or step == 1:
            print(
                f"step {step:4d}  loss {loss.item():8.3f}  rec {rec.item():7.3f}  kl {kl.item():6.3f}"
            )
    r, k, near = report(model, held)
    print(
        f"held-out: negative ELBO {r + k:.3f} (rec {r:.3f} + kl {k:.3f}), "
        f"prior samples to nearest glyph {near:.3f}"
    )
    return model, held


@torch.no_grad()
def spread(model, x, draws=2000):
    mu, logvar = model.encode(x[:20])
    z = torch.stack([model.reparameterize(mu, logvar) for _ in range(draws)])
    return z.var(0) / logvar.exp()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    ap.add_argument("--latent", type=int, default=Config.latent)
    ap.add_argument("--beta", type=float, default=Config.beta)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    cfg = Config(**vars(ap.parse_args()))
    model, held = train(cfg)
    if cfg.prove:
        ratio = spread(model, held)
        print(
            f"variance of drawn codes / exp(logvar): {ratio.min():.4f} .. {ratio.max():.4f}"
        )
        print("fault shows:", "yes" if (ratio.log().abs() > 0.3).any() else "no")


if __name__ == "__main__":
    main()
