"""CAUSVID-19: weights in bfloat16 are too coarse for the steps they get.

Source: tianweiy/CausVid#19 (the reason is told in pytorch/ao#1124). The whole model
is converted to bfloat16 and trained as it was in single precision. A step of less
than some thousandths of a weight is rounded away: most weights stand still, and only
the small ones move. --fixed keeps single-precision weights and computes in bfloat16
by autocast.
"""

import argparse

import torch
from torch import nn


class Generator(nn.Module):
    """One denoising step of a small clip, conditioned on the noise level."""

    def __init__(self, frames=6, size=8, width=64):
        super().__init__()
        self.level = nn.Sequential(nn.Linear(1, width), nn.SiLU())
        self.inside = nn.Linear(frames * size, width)
        self.block = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU()
        )
        self.outside = nn.Linear(width, frames * size)

    def forward(self, clip, sigma):
        h = self.inside(clip) + self.level(sigma)
        return self.outside(h + self.block(h))


def clips(count):
    speed = torch.rand(count, 1, 1)
    time = torch.arange(6.0)[:, None]
    wave = torch.sin(speed * time + torch.linspace(0, 6.28, 8))
    return wave.flatten(1)


class Distillation:
    def __init__(self, pure):
        self.model = Generator()
        self.dtype = torch.bfloat16 if pure else torch.float32
        self.model.to(self.dtype)
        self.pure = pure
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.01
        )

    def loss(self, clean):
        sigma = torch.rand(len(clean), 1)
        noisy = clean + sigma * torch.randn(clean.shape)
        noisy, sigma = noisy.to(self.dtype), sigma.to(self.dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not self.pure):
            guess = self.model(noisy, sigma)
        return nn.functional.mse_loss(guess.float(), clean)

    def step(self, clean):
        loss = self.loss(clean)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=40)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    training = Distillation(pure=not options.fixed)
    matrices = [p for p in training.model.parameters() if p.dim() == 2]
    drawn = [matrix.detach().clone() for matrix in matrices]
    for step in range(options.steps):
        loss = training.step(clips(32))
        print(f"step {step} loss {loss:.4f}", flush=True)
    if options.prove:
        still = sum((now == old).sum().item() for now, old in zip(matrices, drawn))
        share = still / sum(matrix.numel() for matrix in matrices)
        print(f"weights where they were: {share:.3f}")
        print("fault shows:", "yes" if share > 0.3 else "no")


if __name__ == "__main__":
    main()
