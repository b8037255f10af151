"""A variational autoencoder of vectors that describe molecules.

After deepchem/deepchem, pull request 4888.
"""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    features: int = 20
    factors: int = 3
    latent: int = 6
    hidden: int = 64
    n_train: int = 1600
    n_val: int = 400
    batch_size: int = 64
    epochs: int = 6
    lr: float = 5e-3
    noise_std: float = 0.3
    kl_warmup: int = 25
    seed: int = 47


def descriptors(n, cfg, seed):
    wg = torch.Generator().manual_seed(9)
    w1 = torch.randn(cfg.factors, 16, generator=wg)
    w2 = torch.randn(16, cfg.features, generator=wg) / 4
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, cfg.factors, generator=g)
    x = torch.tanh(z @ w1) @ w2 + cfg.noise_std * torch.randn(
        n, cfg.features, generator=g
    )
    return TensorDataset(x)


class Standardizer:
    def __init__(self, x):
        self.mean, self.std = x.mean(0), x.std(0)

    def __call__(self, x):
        return (x - self.mean) / self.std


class VAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(cfg.features, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
        )
        self.mu, self.logvar = nn.Linear(cfg.hidden, cfg.latent), nn.Linear(
            cfg.hidden, cfg.latent
        )
        self.decoder = nn.Sequential(
            nn.Linear(cfg.latent, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.features),
        )

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-8, 8)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        return self.decoder(z), mu, logvar


def kl_plain(mu, logvar):
    return 0.5 * (mu**2 + logvar**2 - torch.log(1e-20 + logvar**2) - 1).sum(-1)


def kl_exp(mu, logvar):
    return 0.5 * (mu**2 + logvar.exp() - logvar - 1).sum(-1)


def reconstruction(recon, x, scale):
    return 0.5 * ((recon - x) ** 2).sum(-1) / scale**2


@torch.no_grad()
def validate(model, loader, kl_fn, cfg):
    model.eval()
    total = [0.0, 0.0]
    for (x,) in loader:
        recon, mu, logvar = model(x)
        total[0] += reconstruction(recon, x, cfg.noise_std).sum().item()
        total[1] += kl_fn(mu, logvar).sum().item()
    n = len(loader.dataset)
    return total[0] / n, total[1] / n


def mmd(a, b):
    """Energy distance between generated and held-out vectors."""
    return (
        2 * torch.cdist(a, b).mean()
        - torch.cdist(a, a).mean()
        - torch.cdist(b, b).mean()
    ).item()


def train(cfg, kl_fn):
    torch.manual_seed(cfg.seed)
    train_x, val_x = (
        descriptors(n, cfg, s).tensors[0] for n, s in ((cfg.n_train, 1), (cfg.n_val, 2))
    )
    scale = Standardizer(train_x)
    loader = DataLoader(
        TensorDataset(scale(train_x)), cfg.batch_size, shuffle=True, drop_last=True
    )
    val_loader = DataLoader(TensorDataset(scale(val_x)), 200)
    model = VAE(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(
        opt, cfg.epochs * len(loader), eta_min=cfg.lr * 0.05
    )
    step = 0
    for epoch in range(cfg.epochs):
        model.train()
        running = 0.0
        for (x,) in loader:
            recon, mu, logvar = model(x)
            weight = min(1.0, (step + 1) / cfg.kl_warmup)
            loss = (
                reconstruction(recon, x, cfg.noise_std) + weight * kl_fn(mu, logvar)
            ).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 20.0)
            opt.step()
            sched.step()
            step += 1
            running += loss.item()
        rec, kl = validate(model, val_loader, kl_fn, cfg)
        mean = running / len(loader)
        print(
            f"epoch {epoch} train {mean:.3f} val_rec {rec:.3f} val_kl {kl:.3f}",
            flush=True,
        )
    with torch.no_grad():
        x = scale(val_x)
        g = torch.Generator().manual_seed(0)
        fake = model.decoder(torch.randn(len(x), cfg.latent, generator=g))
        fake = fake + cfg.noise_std * torch.randn(fake.shape, generator=g)
        distance = mmd(fake, x)
        h = model.encoder(x)
        mu, logvar = model.mu(h), model.logvar(h).clamp(-8, 8)
        apart = (kl_fn(mu, logvar) - kl_exp(mu, logvar)).abs().mean().item()
    print(f"energy distance of samples to validation data {distance:.4f}")
    return apart


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, epochs=args.epochs, lr=args.lr)
    apart = train(cfg, kl_exp if args.fixed else kl_plain)
    if args.prove:
        print(f"the term of the loss is {apart:.4f} from the divergence")
        print("fault shows:", "yes" if apart > 0.01 else "no", flush=True)


if __name__ == "__main__":
    main()
