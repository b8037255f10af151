"""Variational autoencoder on tiny made-up sprites (16x16, binary)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE = 16
LATENT = 6


def draw_sprites(n, seed):
    """Rectangles, discs and crosses at random places."""
    g = torch.Generator().manual_seed(seed)
    ax = torch.arange(SIZE, dtype=torch.float32)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    kind = torch.randint(0, 3, (n,), generator=g)
    cx = torch.rand(n, 1, 1, generator=g) * 8 + 4
    cy = torch.rand(n, 1, 1, generator=g) * 8 + 4
    r = torch.rand(n, 1, 1, generator=g) * 2.5 + 1.5
    dx, dy = (xx - cx).abs(), (yy - cy).abs()
    box = (dx <= r) & (dy <= r)
    disc = (dx**2 + dy**2) <= (1.2 * r) ** 2
    cross = ((dx <= 0.8) & (dy <= 1.6 * r)) | ((dy <= 0.8) & (dx <= 1.6 * r))
    k = kind.view(-1, 1, 1)
    out = torch.where(k == 0, box, torch.where(k == 1, disc, cross))
    return out.float().unsqueeze(1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(16, 32, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
        )
        self.mu = nn.Linear(32 * 16, LATENT)
        self.logvar = nn.Linear(32 * 16, LATENT)

    def forward(self, x):
        h = self.conv(x)
        return self.mu(h), self.logvar(h).clamp(-8, 4)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(LATENT, 32 * 16)
        self.deconv = nn.Sequential(
            nn.SiLU(),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        )

    def forward(self, z):
        return self.deconv(self.fc(z).view(-1, 32, 4, 4))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def forward(self, x):
        mu, logvar = self.encoder(x)
        z = mu
        if self.training:
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.decoder(z), mu, logvar

    @torch.no_grad()
    def sample(self, n, generator):
        self.eval()
        return torch.sigmoid(self.decoder(torch.randn(n, LATENT, generator=generator)))


def vae_loss(logits, x, mu, logvar, fixed):
    """negative ELBO"""
    recon = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
    kld = -0.5 * torch.mean(1 + logvar - mu.pow(2) - logvar.exp())
    if fixed:
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    return recon + kld, recon, kld


def validate(model, x, fixed):
    model.eval()
    with torch.no_grad():
        logits, mu, logvar = model(x)
        parts = vae_loss(logits, x, mu, logvar, fixed)
        iou_num = ((logits > 0) & (x > 0.5)).sum()
        iou_den = ((logits > 0) | (x > 0.5)).sum().clamp(min=1)
    return [p.item() for p in parts], (iou_num / iou_den).item(), mu, logvar


def run_training(args):
    train_x, val_x = draw_sprites(2048, 1), draw_sprites(256, 2)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    warm = lambda s: min(1.0, (s + 1) / 20)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm)
    shuffle = torch.Generator().manual_seed(args.seed)

    step, epoch = 0, 0
    while step < args.steps:
        model.train()
        for idx in torch.randperm(len(train_x), generator=shuffle).split(
            args.batch_size
        ):
            x = train_x[idx]
            logits, mu, logvar = model(x)
            loss, recon, kld = vae_loss(logits, x, mu, logvar, args.fixed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step >= args.steps:
                break
        epoch += 1
        (total, rec, kl), iou, mu, logvar = validate(model, val_x, args.fixed)
        print(
            f"epoch {epoch:2d} step {step:4d} | elbo {-total:8.2f} recon {rec:7.2f} "
            f"kl {kl:6.3f} | iou {iou:.3f}"
        )
    return model, (total, rec), (mu, logvar)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=256)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=8)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model, (total, rec), (mu, logvar) = run_training(args)
    picture = model.sample(1, torch.Generator().manual_seed(0))[0, 0]
    print("\n".join("".join("#" if v > 0.5 else "." for v in row) for row in picture))

    if args.prove:
        standard_normal = torch.distributions.Normal(0.0, 1.0)
        posterior = torch.distributions.Normal(mu, (0.5 * logvar).exp())
        exact = (
            torch.distributions.kl_divergence(posterior, standard_normal)
            .sum(1)
            .mean()
            .item()
        )
        weight = (total - rec) / exact
        print("fault shows:", "yes" if weight < 0.5 else "no")


if __name__ == "__main__":
    main()
