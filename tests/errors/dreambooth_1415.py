"""Diffusion of one-dimensional profiles; an averaged copy of the weights is evaluated.

The forward runs in bfloat16 by autocast, the weights are float32; the average follows
with a decay of 0.99. d8ahazard/sd_dreambooth_extension#1415.
"""

import argparse
import copy
import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

LEVELS, LENGTH = 50, 32


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.level = nn.Embedding(LEVELS, width)
        self.first = nn.Linear(LENGTH, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.SiLU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(3)
        )
        self.last = nn.Linear(width, LENGTH)

    def forward(self, x, level):
        x = self.first(x) + self.level(level)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


class EMA:
    def __init__(self, model, decay, dtype):
        self.model = copy.deepcopy(model).to(dtype).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for slow, fast in zip(self.model.parameters(), model.parameters()):
            slow.mul_(self.decay).add_(fast.to(slow.dtype), alpha=1 - self.decay)

    def copy_to(self, model):
        pairs = zip(model.parameters(), self.model.parameters())
        with torch.no_grad():
            for own, slow in pairs:
                own.copy_(slow)
        return model


def profiles(count, seed):
    generator = torch.Generator().manual_seed(seed)
    place = torch.linspace(0, 1, LENGTH)[None]
    hills = torch.zeros(count, LENGTH)
    for _ in range(2):
        middle, height = torch.rand(2, count, 1, generator=generator)
        hills += (0.5 + height) * torch.exp(-40 * (place - middle) ** 2)
    return TensorDataset(hills - hills.mean())


def noised(x, kept, generator=None):
    level = torch.randint(LEVELS, (len(x),), generator=generator)
    noise = torch.randn(x.shape, generator=generator)
    share = kept[level][:, None]
    return share.sqrt() * x + (1 - share).sqrt() * noise, level, noise


@torch.no_grad()
def evaluate(model, loader, kept):
    generator = torch.Generator().manual_seed(11)
    losses = []
    for (x,) in loader:
        noisy, level, noise = noised(x, kept, generator)
        losses.append(F.mse_loss(model(noisy, level), noise).item())
    return sum(losses) / len(losses)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=150)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(profiles(1600, 1), batch_size=64, shuffle=True)
    valid = DataLoader(profiles(320, 2), batch_size=160)
    kept = torch.linspace(0.98, 0.02, LEVELS)
    model = Denoiser()
    ema = EMA(model, 0.99, torch.float32 if options.fixed else torch.bfloat16)
    exact = EMA(model, 0.99, torch.float64) if options.prove else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    while step < options.steps:
        for (x,) in train:
            if step == options.steps:
                break
            noisy, level, noise = noised(x, kept)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                predicted = model(noisy, level)
            loss = F.mse_loss(predicted.float(), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
            if exact:
                exact.update(model)
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"validation loss {evaluate(model, valid, kept):.4f}", flush=True)
    averaged = ema.copy_to(Denoiser())
    print(f"average: loss {evaluate(averaged, valid, kept):.4f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(averaged.state_dict(), os.path.join(folder, "ema.pt"))
    if options.prove:
        pairs = zip(ema.model.parameters(), exact.model.parameters())
        gaps = [(a.double() - b).abs().mean().item() for a, b in pairs]
        off = sum(gaps) / len(gaps)
        print(f"the average is off by {off:.6f}", flush=True)
        print("fault shows:", "yes" if off > 1e-4 else "no")


if __name__ == "__main__":
    main()
