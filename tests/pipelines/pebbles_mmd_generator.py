"""Pictures of pebbles by moment matching: a generator without adversary and without likelihood.

1. An auto-encoder is trained on the pictures and then frozen.
2. A generator maps noise to CODES; its loss is the unbiased squared MMD between generated and real
   codes, with kernels of several widths (GMMN + AE). Being unbiased, the estimate may fall below
   zero when the two clouds agree: this is no fault.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE, CODE, NOISE = 12, 6, 6


def pebbles(n, g):
    u = torch.rand(n, 5, generator=g)
    cx, cy = 4 + 3 * u[:, 0], 4 + 3 * u[:, 1]
    long, short = 2.5 + 1.5 * u[:, 2], 1.5 + 1.0 * u[:, 3]
    angle = torch.pi * u[:, 4]
    yy, xx = torch.meshgrid(
        torch.arange(SIDE).float(), torch.arange(SIDE).float(), indexing="ij"
    )
    dx, dy = xx - cx[:, None, None], yy - cy[:, None, None]
    c, s = angle.cos()[:, None, None], angle.sin()[:, None, None]
    r = ((c * dx + s * dy) / long[:, None, None]) ** 2 + (
        (c * dy - s * dx) / short[:, None, None]
    ) ** 2
    return torch.sigmoid(4 * (1 - r)).flatten(1)


def autoencoder():
    encoder = nn.Sequential(
        nn.Linear(SIDE * SIDE, 128), nn.ReLU(), nn.Linear(128, CODE)
    )
    decoder = nn.Sequential(
        nn.Linear(CODE, 128), nn.ReLU(), nn.Linear(128, SIDE * SIDE)
    )
    return encoder, decoder


def generator():
    return nn.Sequential(
        nn.Linear(NOISE, 96),
        nn.ReLU(),
        nn.Linear(96, 96),
        nn.ReLU(),
        nn.Linear(96, CODE),
    )


def squared_distances(a, b):
    return a.square().sum(1)[:, None] + b.square().sum(1)[None] - 2 * a @ b.T


def mmd2(x, y, widths):
    """Unbiased: the diagonals of the two inner parts are left out."""
    assert x.shape == y.shape
    n = len(x)

    def k(a, b):
        d2 = squared_distances(a, b)  # no square root: smooth also where a equals b
        return sum(torch.exp(-d2 / (2 * w)) for w in widths) / len(widths)

    xx, yy, xy = k(x, x), k(y, y), k(x, y)
    inner = (xx.sum() - xx.diagonal().sum() + yy.sum() - yy.diagonal().sum()) / (
        n * (n - 1)
    )
    return inner - 2 * xy.mean()


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200, help="generator steps")
    steps = ap.parse_args().steps
    torch.manual_seed(31)
    g = torch.Generator().manual_seed(32)
    train, held = pebbles(3000, g), pebbles(500, g)

    encoder, decoder = autoencoder()
    opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)
    for step in range(200):
        x = train[torch.randint(0, len(train), (128,), generator=g)]
        recon = F.binary_cross_entropy_with_logits(decoder(encoder(x)), x)
        opt.zero_grad()
        recon.backward()
        opt.step()
        if step % 50 == 0:
            print(f"auto-encoder {step} loss {recon.item():.4f}")
    for p in [*encoder.parameters(), *decoder.parameters()]:
        p.requires_grad_(False)
    print(
        f"auto-encoder held {F.binary_cross_entropy_with_logits(decoder(encoder(held)), held).item():.4f}"
    )

    # codes of the whole training set, once: the encoder does not change any more
    codes, held_codes = encoder(train), encoder(held)
    mean, std = codes.mean(0), codes.std(0)
    codes, held_codes = (codes - mean) / std, (held_codes - mean) / std
    median = (
        squared_distances(codes[:500], codes[:500])[~torch.eye(500, dtype=torch.bool)]
        .median()
        .item()
    )
    widths = [
        median * f for f in (0.05, 0.2, 0.5, 1.0)
    ]  # squared widths about the median

    gen = generator()
    opt = torch.optim.Adam(gen.parameters(), lr=3e-3)
    drop = torch.optim.lr_scheduler.MultiStepLR(
        opt, [steps * 6 // 10, steps * 8 // 10], gamma=0.3
    )
    fixed = torch.randn(500, NOISE, generator=g)

    @torch.no_grad()
    def evaluate():
        """MMD to the held-out codes, and how far the mean picture is from the held-out one."""
        made = gen(fixed)
        pictures = torch.sigmoid(decoder(made * std + mean))
        return (
            mmd2(made, held_codes, widths).item(),
            (pictures.mean(0) - held.mean(0)).abs().mean().item(),
            pictures.std(0).mean().item(),
        )

    floor = mmd2(codes[:500], held_codes, widths).item()
    start = evaluate()
    for step in range(steps):
        real = codes[torch.randint(0, len(codes), (256,), generator=g)]
        loss = mmd2(gen(torch.randn(256, NOISE, generator=g)), real, widths)
        opt.zero_grad()
        loss.backward()
        opt.step()
        drop.step()
        if step % 50 == 0 or step == steps - 1:
            m, pixel, spread = evaluate()
            print(
                f"generator {step:3d} loss {loss.item():+.5f} held mmd2 {m:+.5f} "
                f"mean picture off by {pixel:.4f} spread {spread:.3f}"
            )
    end = evaluate()
    print(
        f"held mmd2 {start[0]:.5f} -> {end[0]:.5f} (two real halves: {floor:+.5f}); spread of the "
        f"pixels {end[2]:.3f}, real {held.std(0).mean().item():.3f}"
    )
    assert all(p.grad is not None for p in gen.parameters())
    if steps >= 200:
        assert end[0] < 0.15 * start[0] and end[1] < start[1]
        assert (
            end[2] > 0.6 * held.std(0).mean().item()
        ), "the pictures must not be all alike"


if __name__ == "__main__":
    main()
