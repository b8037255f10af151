"""Lesions in slices of a spinal cord are segmented by a small U-Net.

The rate falls along a cosine, once for each epoch, to zero at the end of the training.
ivadomed/ivadomed#55.
"""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = block(1, width)
        self.second = block(width, 2 * width)
        self.bottom = block(2 * width, 4 * width)
        self.third = block(6 * width, 2 * width)
        self.last = block(3 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.first(x)
        b = self.second(nn.functional.max_pool2d(a, 2))
        c = self.bottom(nn.functional.max_pool2d(b, 2))
        c = nn.functional.interpolate(c, scale_factor=2)
        b = self.third(torch.cat([c, b], 1))
        b = nn.functional.interpolate(b, scale_factor=2)
        return self.out(self.last(torch.cat([b, a], 1)))


def slices(count, seed, size=32):
    generator = torch.Generator().manual_seed(seed)
    grid = torch.arange(float(size))

    def discs(radius, spread):
        middle = size / 2 + spread * (torch.rand(count, 2, generator=generator) - 0.5)
        down = (grid[None, :, None] - middle[:, 0, None, None]) ** 2
        across = (grid[None, None, :] - middle[:, 1, None, None]) ** 2
        return (down + across < radius[:, None, None] ** 2).float()

    cord = discs(9 + 3 * torch.rand(count, generator=generator), 4)
    lesion = discs(1.5 + 2.5 * torch.rand(count, generator=generator), 12) * cord
    noise = 0.35 * torch.randn(count, size, size, generator=generator)
    image = cord + 0.7 * lesion + noise
    return TensorDataset(image[:, None], lesion[:, None])


def dice(probability, mask):
    both = (probability * mask).sum((1, 2, 3))
    return (2 * both + 1) / (probability.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)


def objective(logits, mask):
    overlap = 1 - dice(logits.sigmoid(), mask).mean()
    return overlap + nn.functional.binary_cross_entropy_with_logits(logits, mask)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    scores = [dice((model(image) > 0).float(), mask) for image, mask in loader]
    model.train()
    return torch.cat(scores).mean().item()


class Trainer:
    def __init__(self, model, loader, epochs, per_batch):
        self.model, self.loader, self.per_batch = model, loader, per_batch
        self.optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.optimizer, T_max=epochs
        )
        self.step, self.rates = 0, []

    def epoch(self, steps):
        for image, mask in self.loader:
            if self.step == steps:
                return
            loss = objective(self.model(image), mask)
            self.optimizer.zero_grad()
            loss.backward()
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            if self.per_batch:
                self.scheduler.step()
            if self.step % 10 == 0:
                print(f"step {self.step} loss {loss.item():.4f}", flush=True)
            self.step += 1
        if not self.per_batch:
            self.scheduler.step()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(slices(192, 1), batch_size=16, shuffle=True)
    valid = DataLoader(slices(64, 2), batch_size=32)
    epochs = -(-options.steps // len(train))
    model = UNet()
    trainer = Trainer(model, train, epochs, per_batch=not options.fixed)
    for epoch in range(epochs):
        trainer.epoch(options.steps)
        print(f"epoch {epoch} validation dice {validate(model, valid):.4f}", flush=True)
    if options.prove:
        off = 0.0
        for step, rate in enumerate(trainer.rates):
            share = step // len(train) / epochs
            off = max(off, abs(rate - 0.002 * (1 + math.cos(math.pi * share))))
        print(f"the rate is off the plan by {off:.5f} at most", flush=True)
        print("fault shows:", "yes" if off > 1e-4 else "no")


if __name__ == "__main__":
    main()
