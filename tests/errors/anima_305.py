"""Trains a small flow-matching network on a handful of pictures, with accumulation.

Eighty made-up pictures of 8x8 are read in batches of eight; the gradients of four
batches make one update. The pictures are shuffled in each epoch.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Velocity(nn.Module):
    def __init__(self, pixels=64, width=96):
        super().__init__()
        self.time = nn.Linear(8, width)
        self.enter = nn.Linear(pixels, width)
        self.body = nn.Sequential(
            nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, pixels)
        )

    def forward(self, x, t):
        waves = t[:, None] * 2.0 ** torch.arange(4)
        return self.body(
            self.enter(x) + self.time(torch.cat([waves.sin(), waves.cos()], 1))
        )


def pictures(count=80, side=8):
    """Bright discs at random places."""
    axis = torch.arange(side).float()
    centre = 2 + 4 * torch.rand(count, 2, 1, 1)
    distance = (axis[:, None] - centre[:, :1]) ** 2 + (
        axis[None, :] - centre[:, 1:]
    ) ** 2
    return (2 * torch.exp(-distance / 4) - 1).flatten(1)


class Loop:
    def __init__(self, model, loader, grad_accum, flush):
        self.model = model
        self.loader = loader
        self.grad_accum = grad_accum
        self.flush = flush
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.global_step = 0
        self.pending = 0
        self.groups = []

    def loss_of(self, x):
        t = torch.rand(len(x))
        noise = torch.randn_like(x)
        mixed = (1 - t[:, None]) * x + t[:, None] * noise
        return (self.model(mixed, t) - (noise - x)).square().mean()

    def accumulation_step(self, index):
        """Size of the group that a batch belongs to, and whether it ends there."""
        if not self.flush:
            return self.grad_accum, (index + 1) % self.grad_accum == 0
        start = index - index % self.grad_accum
        size = min(self.grad_accum, len(self.loader) - start)
        return size, index + 1 == start + size

    def step(self, size):
        self.groups.append((self.pending, size))
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.pending = 0
        self.global_step += 1

    def run(self, steps):
        self.optimizer.zero_grad()
        total = 0.0
        while True:
            for index, (x,) in enumerate(self.loader):
                size, is_end = self.accumulation_step(index)
                loss = self.loss_of(x)
                (loss / size).backward()
                self.pending += 1
                total += loss.item()
                if is_end:
                    mean = total / self.pending
                    total = 0.0
                    print(f"step {self.global_step} loss {mean:.4f}", flush=True)
                    self.step(size)
                    if self.global_step == steps:
                        return


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=30)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(pictures()), batch_size=8, shuffle=True)
    loop = Loop(Velocity(), loader, grad_accum=4, flush=options.fixed)
    loop.run(options.steps)
    if options.prove:
        wrong = any(count != size for count, size in loop.groups)
        print("fault shows:", "yes" if wrong else "no")


if __name__ == "__main__":
    main()
