"""KL autoencoder for small CT-like patches, stage one of a latent diffusion pipeline.

The weights of the epoch with the lowest validation loss are kept for stage two.
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_patches(count, seed):
    g = torch.Generator().manual_seed(seed)
    ax = torch.linspace(-1, 1, 24)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    out = []
    for _ in range(count):
        u = torch.rand(8, generator=g)
        body = torch.sigmoid(
            15 * (1 - (xx / (0.6 + 0.3 * u[0])) ** 2 - (yy / (0.5 + 0.3 * u[1])) ** 2)
        )
        organ = torch.sigmoid(
            20
            * (
                0.25
                + 0.1 * u[2]
                - ((xx - 0.4 * u[3]) ** 2 + (yy + 0.3 * u[4]) ** 2).sqrt()
            )
        )
        bone = torch.sigmoid(
            20 * (0.15 - ((xx + 0.1 + 0.3 * u[5]) ** 2 + (yy - 0.2 * u[6]) ** 2).sqrt())
        )
        out.append(0.4 * body + 0.25 * organ + 0.5 * bone * u[7])
    x = torch.stack(out).unsqueeze(1)
    return (x + 0.02 * torch.randn(x.shape, generator=g)).clamp(0, 1)


class ResBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(4, ch),
            nn.SiLU(),
            nn.Conv2d(ch, ch, 3, padding=1),
            nn.GroupNorm(4, ch),
            nn.SiLU(),
            nn.Conv2d(ch, ch, 3, padding=1),
        )

    def forward(self, x):
        return x + self.body(x)


class AutoencoderKL(nn.Module):
    def __init__(self, ch=12, latent=3):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, ch, 3, padding=1),
            nn.Conv2d(ch, 2 * ch, 3, stride=2, padding=1),
            ResBlock(2 * ch),
            nn.Conv2d(2 * ch, 2 * ch, 3, stride=2, padding=1),
            nn.SiLU(),
        )
        self.to_mu = nn.Conv2d(2 * ch, latent, 1)
        self.to_log_sigma = nn.Conv2d(2 * ch, latent, 1)
        self.decoder = nn.Sequential(
            nn.Conv2d(latent, 2 * ch, 3, padding=1),
            ResBlock(2 * ch),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * ch, ch, 3, padding=1),
            ResBlock(ch),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(ch, 1, 3, padding=1),
        )

    def encode(self, x):
        h = self.encoder(x)
        return self.to_mu(h), self.to_log_sigma(h).clamp(-10, 5).exp()

    def forward(self, x):
        mu, sigma = self.encode(x)
        z = mu + sigma * torch.randn_like(sigma) if self.training else mu
        return self.decoder(z), mu, sigma


def kl_loss(mu, sigma):
    kl = 0.5 * (mu.pow(2) + sigma.pow(2) - sigma.pow(2).log() - 1)
    return kl.flatten(1).sum(1).mean()


def loss_weighted_sum(losses, args):
    return losses["recons_loss"] + args.kl_weight * losses["kl_loss"]


# size: the whole run in one place, read from top to bottom
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--kl-weight", type=float, default=2e-4)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    train_loader = DataLoader(
        TensorDataset(make_patches(192, 1)), batch_size=args.batch_size, shuffle=True
    )
    val_loader = DataLoader(TensorDataset(make_patches(64, 2)), batch_size=16)
    autoencoder = AutoencoderKL()
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.1, total_iters=args.epochs
    )

    best_val, best_epoch, best_state = float("inf"), -1, None
    audit = []
    for epoch in range(args.epochs):
        autoencoder.train()
        train_losses = {"recons_loss": 0.0, "kl_loss": 0.0}
        for (images,) in train_loader:
            optimizer.zero_grad(set_to_none=True)
            reconstruction, z_mu, z_sigma = autoencoder(images)
            losses = {
                "recons_loss": F.l1_loss(reconstruction, images),
                "kl_loss": kl_loss(z_mu, z_sigma),
            }
            loss_g = loss_weighted_sum(losses, args)
            loss_g.backward()
            optimizer.step()
            for k in losses:
                train_losses[k] += losses[k].item() / len(train_loader)
        scheduler.step()

        autoencoder.eval()
        val_losses = {"recons_loss": 0.0, "kl_loss": 0.0}
        true_kl = 0.0
        for (images,) in val_loader:
            with torch.no_grad():
                if args.fixed:
                    reconstruction, z_mu, z_sigma = autoencoder(images)
                else:
                    reconstruction, _, _ = autoencoder(images)
                val_losses["recons_loss"] += F.l1_loss(
                    reconstruction, images
                ).item() / len(val_loader)
                val_losses["kl_loss"] += kl_loss(z_mu, z_sigma).item() / len(val_loader)
                if args.prove:
                    true_kl += kl_loss(*autoencoder.encode(images)).item() / len(
                        val_loader
                    )
        val_total = loss_weighted_sum(val_losses, args)
        audit.append((val_losses["kl_loss"], true_kl))
        print(
            f"epoch {epoch}: train recon {train_losses['recons_loss']:.4f} kl {train_losses['kl_loss']:.2f} | "
            f"val recon {val_losses['recons_loss']:.4f} kl {val_losses['kl_loss']:.2f} total {val_total:.4f}"
        )
        if val_total < best_val:
            best_val, best_epoch = val_total, epoch
            best_state = copy.deepcopy(autoencoder.state_dict())

    autoencoder.load_state_dict(best_state)
    with torch.no_grad():
        latents = torch.cat([autoencoder.encode(x)[0] for (x,) in val_loader])
    print(
        f"kept epoch {best_epoch} (val loss {best_val:.4f}); latent scale factor {1 / latents.std().item():.3f}"
    )

    if args.prove:
        gap = max(abs(a - b) / max(b, 1e-6) for a, b in audit)
        print(
            f"largest relative distance of the reported validation KL from the KL of the validation set: {gap:.4f}"
        )
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
