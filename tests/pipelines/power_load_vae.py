"""VAE on daily electricity load curves (24 values), with KL warm-up.

Anomaly score on a validation set at the end (ELBO of odd days vs usual days).
"""
import argparse
import dataclasses
import math

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split


@dataclasses.dataclass
class Config:
    steps: int = 350
    batch_size: int = 64
    lr: float = 2e-3
    latent: int = 6
    hidden: int = 96
    beta: float = 1.0
    kl_warmup: int = 120
    eval_every: int = 70
    seed: int = 8

    @classmethod
    def from_cli(cls):
        p = argparse.ArgumentParser()
        for f in dataclasses.fields(cls):
            p.add_argument(f"--{f.name}", type=f.type, default=f.default)
        return cls(**vars(p.parse_args()))


def load_curves(n, rng, odd=False):
    h = np.arange(24)
    base = rng.uniform(0.3, 0.6, (n, 1))
    morning = rng.uniform(0.3, 1.0, (n, 1)) * np.exp(
        -((h - rng.normal(7.5, 0.7, (n, 1))) ** 2) / 3
    )
    evening = rng.uniform(0.5, 1.4, (n, 1)) * np.exp(
        -((h - rng.normal(19, 1.0, (n, 1))) ** 2) / 6
    )
    if odd:
        evening = np.roll(evening, 9, axis=1)
    x = base + morning + evening + rng.normal(0, 0.05, (n, 24))
    return torch.tensor(x, dtype=torch.float32)


class VAE(nn.Module):
    def __init__(self, cfg: Config, n_in=24):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(n_in, cfg.hidden),
            nn.ELU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ELU(),
            nn.Linear(cfg.hidden, 2 * cfg.latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(cfg.latent, cfg.hidden),
            nn.ELU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ELU(),
            nn.Linear(cfg.hidden, n_in),
        )
        self.log_sigma = nn.Parameter(
            torch.zeros(n_in)
        )  # learned noise level of each hour

    def encode(self, x):
        mu, logvar = self.encoder(x).chunk(2, dim=1)
        return mu, logvar.clamp(-8, 6)

    def forward(self, x):
        mu, logvar = self.encode(x)
        if self.training:
            z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        else:
            z = mu
        return self.decoder(z), mu, logvar

    def terms(self, x):
        """negative log likelihood and KL, one value for each sample (summed over dimensions)"""
        recon, mu, logvar = self(x)
        s = self.log_sigma.clamp(min=-4)
        nll = (
            0.5 * ((x - recon) / s.exp()) ** 2 + s + 0.5 * math.log(2 * math.pi)
        ).sum(1)
        kl = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).sum(1)
        return nll, kl


def kl_weight(step, cfg):
    return cfg.beta * min(1.0, step / max(1, cfg.kl_warmup))


@torch.no_grad()
def evaluate(model, loader, beta=1.0):
    model.eval()
    nll_sum = kl_sum = 0.0
    scores = []
    for (x,) in loader:
        nll, kl = model.terms(x)
        nll_sum += nll.sum().item()
        kl_sum += kl.sum().item()
        scores.append(nll + beta * kl)
    n = len(loader.dataset)
    return nll_sum / n, kl_sum / n, torch.cat(scores)


def auc(neg, pos):
    """probability that an odd day scores higher"""
    return (pos[:, None] > neg[None, :]).float().mean().item()


def make_loaders(cfg, rng):
    days = load_curves(3000, rng)
    train_set, valid_set = random_split(
        TensorDataset(days),
        [2500, 500],
        generator=torch.Generator().manual_seed(cfg.seed),
    )
    # scale with the training days
    mu = days[train_set.indices].mean(0)
    sd = days[train_set.indices].std(0)
    scaled = lambda x: TensorDataset((x - mu) / sd)
    train_set, valid_set = scaled(days[train_set.indices]), scaled(
        days[valid_set.indices]
    )
    odd_set = scaled(load_curves(200, rng, odd=True))

    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=250)
    odd_loader = DataLoader(odd_set, batch_size=250)
    return (train_loader, valid_loader, odd_loader), mu, sd


def main():
    cfg = Config.from_cli()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)

    loaders, mu, sd = make_loaders(cfg, rng)
    train_loader, valid_loader, odd_loader = loaders

    model = VAE(cfg)
    optimizer = torch.optim.Adamax(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(
        optimizer, total_iters=cfg.steps, power=0.9
    )

    step, done = 0, False
    avg_nll = avg_kl = None
    while not done:
        for (x,) in train_loader:
            model.train()
            nll, kl = model.terms(x)
            w = kl_weight(step, cfg)
            loss = (nll + w * kl).mean()

            optimizer.zero_grad()
            loss.backward()
            gnorm = nn.utils.clip_grad_norm_(model.parameters(), 50.0)
            if not torch.isfinite(gnorm):
                raise RuntimeError(f"gradient norm is {gnorm} at step {step}")
            optimizer.step()
            scheduler.step()
            step += 1

            # smoothed values for the log
            a, b = nll.mean().item(), kl.mean().item()
            avg_nll = a if avg_nll is None else 0.95 * avg_nll + 0.05 * a
            avg_kl = b if avg_kl is None else 0.95 * avg_kl + 0.05 * b

            if step % cfg.eval_every == 0 or step == cfg.steps:
                v_nll, v_kl, _ = evaluate(model, valid_loader)
                print(
                    f"{step:4d} w={w:.2f} train nll {avg_nll:.2f} kl {avg_kl:.2f} | valid nll {v_nll:.2f} kl {v_kl:.2f}"
                )
            if step >= cfg.steps:
                done = True
                break

    _, _, usual = evaluate(model, valid_loader)
    _, _, odd = evaluate(model, odd_loader)
    print(
        f"mean score usual {usual.mean().item():.1f} odd {odd.mean().item():.1f}, AUC {auc(usual, odd):.3f}"
    )

    with torch.no_grad():
        new_days = model.decoder(torch.randn(3, cfg.latent)) * sd + mu
    for d in new_days:
        print(" ".join(f"{v:.1f}" for v in d.tolist()))


if __name__ == "__main__":
    main()
