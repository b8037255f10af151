"""Importance weighted autoencoder with doubly reparameterised gradients.

Binary 8x8 stamps of spiral shells. With K samples per image,
  * the decoder follows the plain IWAE gradient   sum_k  w_k   d log p,
  * the encoder follows the DReG gradient          sum_k  w_k^2 d log(p/q) / dz . dz/dphi
(Tucker et al., 2019). One backward pass gives both: log q is evaluated with
detached parameters (its score term has mean zero and is dropped), the
normalised weights are constants, and a hook on z multiplies what flows from z
to the encoder once more by w_k. The printed surrogate is not the bound, so the
bound itself is logged next to it.
"""
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

SIDE, LATENT = 8, 4
LOG_2PI = math.log(2 * math.pi)


def make_shells(n, rng):
    """Logarithmic spirals with random turn, centre and thickness, thresholded."""
    axis = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    phase = torch.rand(n, 1, 1, generator=rng) * 2 * math.pi
    cx, cy = (0.3 * (torch.rand(2, n, 1, 1, generator=rng) * 2 - 1)).unbind(0)
    thick = 0.1 + 0.5 * torch.rand(n, 1, 1, generator=rng)
    r = torch.hypot(xx - cx, yy - cy) + 0.05
    angle = torch.atan2(yy - cy, xx - cx)
    image = torch.cos(4 * r.log() + angle + phase) > thick
    return image.float().flatten(1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(SIDE * SIDE, 96), nn.SiLU(), nn.Linear(96, 2 * LATENT)
        )

    def forward(self, x):
        mu, raw = self.body(2 * x - 1).chunk(2, dim=-1)
        return mu, F.softplus(raw) + 1e-3


class Decoder(nn.Module):
    def __init__(self, mean_pixel):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(LATENT, 96),
            nn.SiLU(),
            nn.Linear(96, 96),
            nn.SiLU(),
            nn.Linear(96, SIDE * SIDE),
        )
        with torch.no_grad():  # start at the average picture
            self.body[-1].bias.copy_(torch.logit(mean_pixel.clamp(0.02, 0.98)))

    def log_prob(self, x, z):
        logits = self.body(z)
        return -F.binary_cross_entropy_with_logits(
            logits, x.expand_as(logits), reduction="none"
        ).sum(-1)


def normal_log_prob(z, mu, sigma):
    return (-0.5 * ((z - mu) / sigma) ** 2 - sigma.log() - 0.5 * LOG_2PI).sum(-1)


def log_weights(decoder, x, z, mu, sigma):
    prior = (-0.5 * z**2 - 0.5 * LOG_2PI).sum(-1)
    return decoder.log_prob(x, z) + prior - normal_log_prob(z, mu, sigma)


def dreg_surrogate(encoder, decoder, x, k, eps=None):
    mu, sigma = encoder(x)
    if eps is None:
        eps = torch.randn(k, *mu.shape)
    z = mu + sigma * eps  # (k, batch, latent)
    log_w = log_weights(decoder, x, z, mu.detach(), sigma.detach())
    with torch.no_grad():
        w = torch.softmax(log_w, dim=0)
        bound = (torch.logsumexp(log_w, dim=0) - math.log(k)).mean()
    if z.requires_grad:
        z.register_hook(lambda grad: grad * w.unsqueeze(-1))
    return -(w * log_w).sum(0).mean(), bound.item()


@torch.no_grad()
def evaluate(encoder, decoder, x, k, rng):
    mu, sigma = encoder(x)
    z = mu + sigma * torch.randn(k, *mu.shape, generator=rng)
    log_w = log_weights(decoder, x, z, mu, sigma)
    ess = (1 / torch.softmax(log_w, 0).pow(2).sum(0)).mean().item()
    return (torch.logsumexp(log_w, 0) - math.log(k)).mean().item(), ess


def check_decoder_gradient(encoder, decoder, x, k):
    """The surrogate must give the decoder exactly the gradient of the true bound."""
    eps = torch.randn(k, len(x), LATENT)
    weights = list(decoder.parameters())
    surrogate, _ = dreg_surrogate(encoder, decoder, x, k, eps)
    got = torch.autograd.grad(surrogate, weights)
    with torch.no_grad():
        mu, sigma = encoder(x)
    log_w = log_weights(decoder, x, mu + sigma * eps, mu, sigma)
    want = torch.autograd.grad(
        -(torch.logsumexp(log_w, 0) - math.log(k)).mean(), weights
    )
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=700)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--k", type=int, default=8)
    args = ap.parse_args()

    torch.manual_seed(21)
    rng = torch.Generator().manual_seed(22)
    train, test = make_shells(4000, rng), make_shells(400, rng)
    encoder, decoder = Encoder(), Decoder(train.mean(0))
    check_decoder_gradient(encoder, decoder, train[:32], args.k)

    # Two optimizers, since the two gradients have different scales.
    enc_opt = torch.optim.Adam(encoder.parameters(), lr=2e-3, eps=1e-6)
    dec_opt = torch.optim.Adam(decoder.parameters(), lr=2e-3)
    plans = [
        torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, max(args.steps, 1))
        for o in (enc_opt, dec_opt)
    ]

    start, _ = evaluate(encoder, decoder, test, 64, torch.Generator().manual_seed(1))
    running = start
    for step in range(args.steps):
        x = train[torch.randint(len(train), (args.batch,), generator=rng)]
        surrogate, bound = dreg_surrogate(encoder, decoder, x, args.k)
        enc_opt.zero_grad()
        dec_opt.zero_grad()
        surrogate.backward()
        enc_opt.step()
        dec_opt.step()
        for plan in plans:
            plan.step()
        running = 0.95 * running + 0.05 * bound
        if step % 100 == 0 or step == args.steps - 1:
            print(
                f"step {step:4d} surrogate {surrogate.item():8.3f} bound {running:8.3f}"
            )

    end, ess = evaluate(encoder, decoder, test, 64, torch.Generator().manual_seed(1))
    independent = (
        F.binary_cross_entropy(
            train.mean(0).clamp(1e-3, 1 - 1e-3).expand_as(test), test, reduction="none"
        )
        .sum(1)
        .mean()
        .item()
    )
    print(
        f"test log-likelihood bound {start:.2f} -> {end:.2f}; independent pixels {-independent:.2f}; "
        f"effective samples {ess:.1f} of 64"
    )
    assert 1.0 <= ess <= 64.0
    if args.steps >= 700:
        assert end > start + 5 and end > -independent + 5


if __name__ == "__main__":
    main()
