#!/usr/bin/env python3
import argparse
import math

import torch
from torch import nn

FS = 128


def heartbeats(n, seed):
    """Clean two-second ECG-like traces."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(FS) / FS * 2
    rate = 0.9 + 0.6 * torch.rand(n, 1, generator=g)
    start = torch.rand(n, 1, generator=g)
    phase = (t * rate + start) % 1.0
    wave = torch.exp(-(((phase - 0.5) / 0.025) ** 2))
    wave = wave - 0.25 * torch.exp(-(((phase - 0.56) / 0.03) ** 2))
    wave = wave + 0.15 * torch.exp(-(((phase - 0.3) / 0.05) ** 2))
    wave = wave + 0.3 * torch.exp(-(((phase - 0.8) / 0.07) ** 2))
    gain = 0.7 + 0.6 * torch.rand(n, 1, generator=g)
    return wave * gain


class Denoiser(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Linear(FS, width), nn.ReLU(), nn.Linear(width, 48), nn.ReLU()
        )
        self.decode = nn.Sequential(
            nn.Linear(48, width), nn.ReLU(), nn.Linear(width, FS)
        )

    def forward(self, x):
        return self.decode(self.encode(x))


class Corruption:
    """White noise and baseline wander with a reproducible stream."""

    def __init__(self, sigma, seed, fixed=False):
        self.sigma = sigma
        self.seed = seed
        self.fixed = fixed
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, clean):
        gen = self.gen if self.fixed else torch.Generator().manual_seed(self.seed)
        white = self.sigma * torch.randn(clean.shape, generator=gen)
        t = torch.arange(FS) / FS
        phase = 2 * math.pi * torch.rand(len(clean), 1, generator=gen)
        amp = 0.3 * torch.rand(len(clean), 1, generator=gen)
        return clean + white + amp * torch.sin(2 * math.pi * t + phase)


def snr_gain(model, clean, noisy):
    model.eval()
    with torch.no_grad():
        out = model(noisy)
    model.train()
    before = (noisy - clean).pow(2).mean()
    after = (out - clean).pow(2).mean()
    return 10 * torch.log10(before / after).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--sigma", type=float, default=0.35)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(60)
    clean_train = heartbeats(1500, 61)
    clean_val = heartbeats(300, 62)
    noisy_val = Corruption(args.sigma, seed=9001, fixed=True)(clean_val)

    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(
        optimizer, step_size=max(1, args.steps // 3), gamma=0.4
    )
    corrupt = Corruption(args.sigma, seed=63, fixed=args.fixed)
    order = torch.Generator().manual_seed(64)

    added = []
    smoothed = None
    for step in range(args.steps):
        idx = torch.randint(0, len(clean_train), (args.batch,), generator=order)
        clean = clean_train[idx]
        noisy = corrupt(clean)
        if args.prove and step < 20:
            added.append(noisy - clean)

        loss = nn.functional.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()

        smoothed = (
            loss.item() if smoothed is None else 0.95 * smoothed + 0.05 * loss.item()
        )
        if (step + 1) % 80 == 0:
            print(
                f"step {step + 1} | mse {smoothed:.5f} | SNR gain on held-out traces "
                f"{snr_gain(model, clean_val, noisy_val):.2f} dB"
            )

    print(f"result: {snr_gain(model, clean_val, noisy_val):.2f} dB")

    if args.prove:
        first = added[0].flatten()
        sims = [
            torch.cosine_similarity(first, a.flatten(), dim=0).item() for a in added[1:]
        ]
        mean_sim = sum(sims) / len(sims)
        print(
            f"correlation of the corruption of later steps with that of the first: {mean_sim:.4f}"
        )
        print("fault shows:", "yes" if mean_sim > 0.5 else "no")


if __name__ == "__main__":
    main()
