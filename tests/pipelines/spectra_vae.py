"""
Variational auto-encoder for made-up infrared spectra.

beta warm-up, RMSprop, checkpoints every few epochs and --resume support. The run below
stops in the middle on purpose and picks up from the file, which is how our queue works.
"""
import argparse
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

BINS = 96


def synth_spectra(n, rng):
    grid = np.linspace(0, 1, BINS)
    lines = np.array([0.15, 0.32, 0.48, 0.7, 0.85])
    out = np.zeros((n, BINS))
    amount = rng.dirichlet(np.ones(3), size=n) @ np.array(
        [
            [1.0, 0.2, 0.0, 0.6, 0.0],
            [0.0, 0.9, 0.5, 0.0, 0.3],
            [0.3, 0.0, 0.2, 0.1, 1.0],
        ]
    )
    shift = rng.normal(0, 0.01, (n, 1))
    width = rng.uniform(0.015, 0.035, (n, 1))
    for j, c in enumerate(lines):
        out += amount[:, j : j + 1] * np.exp(-0.5 * ((grid - c - shift) / width) ** 2)
    out += rng.normal(0, 0.02, out.shape)
    return torch.tensor(out, dtype=torch.float32)


class VAE(nn.Module):
    def __init__(self, latent=6, hidden=96):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(BINS, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU()
        )
        self.mu = nn.Linear(hidden, latent)
        self.logvar = nn.Linear(hidden, latent)
        self.dec = nn.Sequential(
            nn.Linear(latent, hidden),
            nn.ELU(),
            nn.Linear(hidden, hidden),
            nn.ELU(),
            nn.Linear(hidden, BINS),
        )
        self.log_sigma = nn.Parameter(
            torch.tensor(-2.0)
        )  # noise of the decoder, learned

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-10, 5)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu) if self.training else mu
        return self.dec(z), mu, logvar

    def terms(self, x):
        """Negative log likelihood and KL, both summed over dimensions and averaged over the batch."""
        recon, mu, logvar = self(x)
        inv_var = torch.exp(-2 * self.log_sigma)
        nll = (
            (0.5 * (x - recon) ** 2 * inv_var + self.log_sigma + 0.9189385)
            .sum(dim=1)
            .mean()
        )
        kl = (-0.5 * (1 + logvar - mu**2 - logvar.exp())).sum(dim=1).mean()
        return nll, kl


def save(path, model, opt, sched, epoch, step, gen):
    tmp = path + ".tmp"
    torch.save(
        {
            "model": model.state_dict(),
            "opt": opt.state_dict(),
            "sched": sched.state_dict(),
            "epoch": epoch,
            "step": step,
            "loader_rng": gen.get_state(),
            "torch_rng": torch.get_rng_state(),
        },
        tmp,
    )
    os.replace(tmp, path)


def train(args, train_set, val_set, path, until):
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed + 1)
    loader = DataLoader(train_set, batch_size=args.batch, shuffle=True, generator=gen)
    val_loader = DataLoader(val_set, batch_size=256)

    model = VAE()
    opt = torch.optim.RMSprop(model.parameters(), lr=args.lr, momentum=0.5)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.93)
    first_epoch, step = 0, 0
    if os.path.exists(path):
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        first_epoch, step = state["epoch"] + 1, state["step"]
        gen.set_state(state["loader_rng"])
        torch.set_rng_state(state["torch_rng"])
        print(
            f"resumed at epoch {first_epoch}, step {step}, lr {sched.get_last_lr()[0]:.2e}"
        )

    warm = max(1, args.epochs * len(loader) // 3)
    for epoch in range(first_epoch, until):
        model.train()
        sums = np.zeros(3)
        for (x,) in loader:
            beta = min(1.0, (step + 1) / warm)
            nll, kl = model.terms(x)
            loss = nll + beta * kl
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 20.0)
            opt.step()
            step += 1
            sums += np.array([nll.item(), kl.item(), 1.0]) * len(x)
        sched.step()

        model.eval()
        mse = n = 0.0
        with torch.no_grad():
            for (x,) in val_loader:
                mse += ((model(x)[0] - x) ** 2).mean(dim=1).sum().item()
                n += len(x)
        print(
            f"epoch {epoch:2d} nll {sums[0] / sums[2]:8.2f} kl {sums[1] / sums[2]:6.2f} beta {beta:.2f} "
            f"val mse {mse / n:.5f} sigma {model.log_sigma.exp().item():.3f}"
        )
        if (epoch + 1) % args.save_every == 0 or epoch + 1 == until:
            save(path, model, opt, sched, epoch, step, gen)
    return model


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=16)
    ap.add_argument("--batch", type=int, default=100)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--save-every", type=int, default=4)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()
    random.seed(args.seed)

    spectra = synth_spectra(2400, np.random.default_rng(args.seed))
    train_part, val_part = random_split(
        range(len(spectra)),
        [2000, 400],
        generator=torch.Generator().manual_seed(args.seed),
    )
    train_set = TensorDataset(spectra[list(train_part)])
    val_set = TensorDataset(spectra[list(val_part)])

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vae.pt")
        train(args, train_set, val_set, path, until=max(1, args.epochs // 2))
        model = train(args, train_set, val_set, path, until=args.epochs)

    model.eval()
    with torch.no_grad():
        new = model.dec(torch.randn(5, 6))
    print("peak positions of new spectra:", (new.argmax(dim=1) / BINS).numpy().round(2))


if __name__ == "__main__":
    main()
