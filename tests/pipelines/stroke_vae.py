"""Convolutional VAE on 16x16 glyph bitmaps (free bits off, KL warm-up on)."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence

logging.basicConfig(
    level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
)
log = logging.getLogger("glyph_vae")


def draw_glyphs(n, generator):
    """Random strokes on a grid of four corner points, binarised."""
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    anchors = torch.tensor(
        [[3.0, 3.0], [3.0, 12.0], [12.0, 3.0], [12.0, 12.0], [7.5, 7.5]]
    )
    out = torch.zeros(n, 1, 16, 16)
    for i in range(n):
        a = anchors[torch.randperm(5, generator=generator)[:3]]
        a = a + 0.7 * torch.randn(3, 2, generator=generator)
        for p, q in zip(a[:-1], a[1:]):
            d = q - p
            t = (((yy - p[0]) * d[0] + (xx - p[1]) * d[1]) / d.pow(2).sum()).clamp(0, 1)
            dist = ((yy - p[0] - t * d[0]) ** 2 + (xx - p[1] - t * d[1]) ** 2).sqrt()
            out[i, 0] = torch.maximum(out[i, 0], (dist < 1.2).float())
    return out


class Encoder(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(32 * 16, 128),
            nn.LeakyReLU(0.1),
        )
        self.mu = nn.Linear(128, z)
        self.logvar = nn.Linear(128, z)

    def forward(self, x):
        h = self.net(x)
        return Normal(self.mu(h), torch.exp(0.5 * self.logvar(h).clamp(-10, 10)))


class Decoder(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.fc = nn.Linear(z, 32 * 16)
        self.net = nn.Sequential(
            nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
        )

    def forward(self, z):
        return self.net(self.fc(z).view(-1, 32, 4, 4))


class VAE(nn.Module):
    def __init__(self, z=8):
        super().__init__()
        self.z_dim = z
        self.enc, self.dec = Encoder(z), Decoder(z)

    def forward(self, x):
        q = self.enc(x)
        z = q.rsample() if self.training else q.mean
        return self.dec(z), q

    @torch.no_grad()
    def sample(self, n):
        return torch.sigmoid(self.dec(torch.randn(n, self.z_dim)))


def elbo_terms(logits, x, q):
    """Both terms: summed over pixels / latent dims, mean over the batch."""
    rec = (
        F.binary_cross_entropy_with_logits(logits, x, reduction="none")
        .sum(dim=(1, 2, 3))
        .mean()
    )
    prior = Normal(torch.zeros_like(q.mean), torch.ones_like(q.mean))
    kl = kl_divergence(q, prior).sum(1).mean()
    return rec, kl


class Trainer:
    def __init__(self, model, train_x, valid_x, args):
        self.model, self.train_x, self.valid_x, self.args = (
            model,
            train_x,
            valid_x,
            args,
        )
        self.opt = torch.optim.Adamax(model.parameters(), lr=args.lr)
        self.step = 0

    def beta(self):
        return min(1.0, (self.step + 1) / max(1, self.args.kl_warmup))

    def batches(self):
        while True:
            for idx in torch.randperm(len(self.train_x)).split(self.args.batch_size):
                yield self.train_x[idx]

    def validate(self):
        self.model.eval()
        rec_sum = kl_sum = 0.0
        with torch.no_grad():
            for x in self.valid_x.split(100):
                rec, kl = elbo_terms(*self._forward(x))
                rec_sum += rec.item() * len(x)
                kl_sum += kl.item() * len(x)
        self.model.train()
        return rec_sum / len(self.valid_x), kl_sum / len(self.valid_x)

    def _forward(self, x):
        logits, q = self.model(x)
        return logits, x, q

    def fit(self):
        self.model.train()
        smooth = None
        for x in self.batches():
            if self.step >= self.args.steps:
                break
            rec, kl = elbo_terms(*self._forward(x))
            loss = rec + self.beta() * kl
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_value_(self.model.parameters(), 10.0)
            self.opt.step()
            self.step += 1
            smooth = (
                loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
            )
            if self.step % self.args.log_every == 0 or self.step == self.args.steps:
                vr, vk = self.validate()
                log.info(
                    "step %d loss %.2f | valid rec %.2f kl %.2f -elbo %.2f | beta %.2f",
                    self.step,
                    smooth,
                    vr,
                    vk,
                    vr + vk,
                    self.beta(),
                )


def show(img):
    for row in img[::2]:
        log.info("".join("#" if v > 0.5 else "." for v in row.tolist()))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--kl-warmup", type=int, default=100)
    p.add_argument("--log-every", type=int, default=60)
    p.add_argument("--seed", type=int, default=5)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    g = torch.Generator().manual_seed(args.seed + 1)
    train_x, valid_x = draw_glyphs(1200, g), draw_glyphs(300, g)
    log.info("ink fraction %.3f", train_x.mean())
    model = VAE()
    Trainer(model, train_x, valid_x, args).fit()
    model.eval()
    show(model.sample(1)[0, 0])


if __name__ == "__main__":
    main()
