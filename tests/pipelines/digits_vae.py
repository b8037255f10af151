"""Convolutional VAE on seven-segment style digits (coursework, part 2)."""
import argparse
import math

import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SEGMENTS = {
    0: "abcdef",
    1: "bc",
    2: "abged",
    3: "abgcd",
    4: "fgbc",
    5: "afgcd",
    6: "afgedc",
    7: "abc",
    8: "abcdefg",
    9: "abfgcd",
}
BOXES = {
    "a": (1, 3, 3, 9),
    "g": (7, 9, 3, 9),
    "d": (13, 15, 3, 9),
    "f": (2, 8, 2, 4),
    "b": (2, 8, 8, 10),
    "e": (8, 14, 2, 4),
    "c": (8, 14, 8, 10),
}


def digit_images(n, generator):
    labels = torch.randint(10, (n,), generator=generator)
    images = torch.zeros(n, 1, 16, 16)
    shift = torch.randint(0, 5, (n,), generator=generator)
    for i, label in enumerate(labels.tolist()):
        for s in SEGMENTS[label]:
            t, b, l, r = BOXES[s]
            images[i, 0, t:b, l:r] = 1.0
        images[i] = torch.roll(images[i], int(shift[i]), dims=2)
    flip = torch.rand(images.shape, generator=generator) < 0.02
    return torch.where(flip, 1 - images, images), labels


class VAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ELU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ELU(),
            nn.Flatten(),
        )
        self.fc_mu = nn.Linear(32 * 16, latent)
        self.fc_logvar = nn.Linear(32 * 16, latent)
        self.fc_up = nn.Linear(latent, 32 * 16)
        self.decoder = nn.Sequential(
            nn.ELU(),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.ELU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        )

    def encode(self, x):
        h = self.encoder(x)
        return self.fc_mu(h), self.fc_logvar(h).clamp(-8, 8)

    def decode(self, z):
        return self.decoder(self.fc_up(z).view(-1, 32, 4, 4))

    def forward(self, x, generator=None):
        mu, logvar = self.encode(x)
        eps = torch.randn(mu.shape, generator=generator)
        z = mu + eps * torch.exp(0.5 * logvar)
        return self.decode(z), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    """Reconstruction and KL of every picture in nats (sum over pixels / latents)."""
    rec = (
        F.binary_cross_entropy_with_logits(logits, x, reduction="none")
        .flatten(1)
        .sum(1)
    )
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)
    return rec, kl


def beta_schedule(step, total, warm_fraction=0.4):
    return min(1.0, (step + 1) / max(1, warm_fraction * total))


def test(model, loader):
    model.eval()
    g = torch.Generator().manual_seed(123)
    rec_sum = kl_sum = 0.0
    with torch.no_grad():
        for x, _ in loader:
            logits, mu, logvar = model(x, generator=g)
            rec, kl = elbo_terms(logits, x, mu, logvar)
            rec_sum += rec.sum().item()
            kl_sum += kl.sum().item()
    n = len(loader.dataset)
    return rec_sum / n, kl_sum / n


def active_units(model, loader, threshold=0.01):
    model.eval()
    with torch.no_grad():
        mus = torch.cat([model.encode(x)[0] for x, _ in loader])
    return int((mus.var(0) > threshold).sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--latent", type=int, default=8)
    args = parser.parse_args()

    torch.manual_seed(42)
    g = torch.Generator().manual_seed(42)
    train_x, train_y = digit_images(1500, g)
    test_x, test_y = digit_images(400, g)
    train_loader = DataLoader(
        TensorDataset(train_x, train_y), batch_size=args.batch_size, shuffle=True
    )
    test_loader = DataLoader(TensorDataset(test_x, test_y), batch_size=200)

    model = VAE(args.latent)
    # start the output layer at the mean ink so that early steps are calm
    ink = train_x.mean().item()
    nn.init.constant_(model.decoder[-1].bias, math.log(ink / (1 - ink)))
    optimizer = optim.Adamax(model.parameters(), lr=6e-3)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.85)

    total_steps = args.epochs * len(train_loader)
    step = 0
    for epoch in range(1, args.epochs + 1):
        model.train()
        sums = [0.0, 0.0]
        for x, _ in train_loader:
            beta = beta_schedule(step, total_steps)
            logits, mu, logvar = model(x)
            rec, kl = elbo_terms(logits, x, mu, logvar)
            loss = (rec + beta * kl).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            sums[0] += rec.sum().item()
            sums[1] += kl.sum().item()
        scheduler.step()
        n = len(train_loader.dataset)
        t_rec, t_kl = test(model, test_loader)
        print(
            f"epoch {epoch} beta {beta:.2f} | train rec {sums[0] / n:.2f} kl {sums[1] / n:.2f} "
            f"| test rec {t_rec:.2f} kl {t_kl:.2f} -elbo {t_rec + t_kl:.2f}"
        )

    print("active latent units:", active_units(model, test_loader), "of", args.latent)
    with torch.no_grad():
        picture = torch.sigmoid(model.decode(torch.randn(1, args.latent)))[0, 0]
    print(
        "\n".join(
            "".join("#" if v > 0.5 else "." for v in row) for row in picture.tolist()
        )
    )


if __name__ == "__main__":
    main()
