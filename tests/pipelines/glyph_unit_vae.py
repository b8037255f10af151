# Convolutional beta-VAE on random stroke glyphs (20x20, grey)
import argparse

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="VAE glyph example")
parser.add_argument("--batch-size", type=int, default=64, metavar="N")
parser.add_argument("--epochs", type=int, default=14, metavar="N")
parser.add_argument("--latent", type=int, default=8)
parser.add_argument("--beta", type=float, default=1.0)
parser.add_argument(
    "--kl-warmup", type=int, default=60, help="steps until beta is reached"
)
parser.add_argument("--seed", type=int, default=1, metavar="S")
parser.add_argument("--log-interval", type=int, default=10, metavar="N")
args = parser.parse_args()

torch.manual_seed(args.seed)
np.random.seed(args.seed)


def glyphs(n):
    """two or three straight strokes from a fixed alphabet of 10 glyphs, jittered"""
    strokes = np.random.RandomState(5).uniform(4, 16, (10, 3, 4))
    out = np.zeros((n, 1, 20, 20), dtype=np.float32)
    yy, xx = np.mgrid[0:20, 0:20]
    for i in range(n):
        k = np.random.randint(10)
        for x0, y0, x1, y1 in strokes[k] + np.random.normal(0, 0.6, (3, 4)):
            dx, dy = x1 - x0, y1 - y0
            u = ((xx - x0) * dx + (yy - y0) * dy) / (dx * dx + dy * dy + 1e-6)
            u = np.clip(u, 0, 1)
            dist2 = (xx - x0 - u * dx) ** 2 + (yy - y0 - u * dy) ** 2
            out[i, 0] = np.maximum(out[i, 0], np.exp(-dist2 / 1.5))
    return torch.from_numpy(out)


train_loader = DataLoader(
    TensorDataset(glyphs(1024)), batch_size=args.batch_size, shuffle=True
)
test_loader = DataLoader(TensorDataset(glyphs(256)), batch_size=128, shuffle=False)


class VAE(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.LeakyReLU(0.1),  # 10
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.LeakyReLU(0.1),  # 5
            nn.Flatten(),
            nn.Linear(32 * 25, 96),
            nn.LeakyReLU(0.1),
        )
        self.fc_mu = nn.Linear(96, latent)
        self.fc_logvar = nn.Linear(96, latent)
        self.dec_in = nn.Sequential(
            nn.Linear(latent, 96),
            nn.LeakyReLU(0.1),
            nn.Linear(96, 32 * 25),
            nn.LeakyReLU(0.1),
        )
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
        )

    def encode(self, x):
        h = self.enc(x)
        return self.fc_mu(h), self.fc_logvar(h).clamp(-10, 10)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return self.dec(self.dec_in(z).view(-1, 32, 5, 5))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    """reconstruction and KL, both summed over a picture and averaged over the batch"""
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / x.size(0)
    return rec, kl


model = VAE(args.latent)
optimizer = optim.Adam(model.parameters(), lr=2e-3)
scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
global_step = 0


def train(epoch):
    global global_step
    model.train()
    train_loss = 0.0
    for batch_idx, (data,) in enumerate(train_loader):
        beta = args.beta * min(1.0, (global_step + 1) / args.kl_warmup)
        optimizer.zero_grad()
        logits, mu, logvar = model(data)
        rec, kl = elbo_terms(logits, data, mu, logvar)
        loss = rec + beta * kl
        loss.backward()
        optimizer.step()
        global_step += 1
        train_loss += (rec + kl).item() * data.size(0)
        if batch_idx % args.log_interval == 0:
            print(
                f"Train Epoch: {epoch} [{batch_idx * args.batch_size}/{len(train_loader.dataset)}]\t"
                f"rec {rec.item():.2f} kl {kl.item():.2f} beta {beta:.2f}"
            )
    scheduler.step()
    print(
        f"====> Epoch: {epoch} Average -ELBO: {train_loss / len(train_loader.dataset):.4f}"
    )


def test():
    model.eval()
    rec_sum = kl_sum = 0.0
    active = []
    with torch.no_grad():
        for (data,) in test_loader:
            logits, mu, logvar = model(data)
            rec, kl = elbo_terms(logits, data, mu, logvar)
            rec_sum += rec.item() * data.size(0)
            kl_sum += kl.item() * data.size(0)
            active.append(mu)
    n = len(test_loader.dataset)
    units = (torch.cat(active).var(0) > 0.05).sum().item()
    print(
        f"====> Test set rec {rec_sum / n:.3f} kl {kl_sum / n:.3f} -ELBO {(rec_sum + kl_sum) / n:.3f} "
        f"active units {units}/{args.latent}"
    )


def show(img):
    ramp = " .:-=+*#"
    for row in img[::2]:
        print("".join(ramp[min(7, int(v * 8))] for v in row.tolist()))


if __name__ == "__main__":
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        test()
    with torch.no_grad():
        sample = torch.sigmoid(model.decode(torch.randn(1, args.latent)))
    show(sample[0, 0])
