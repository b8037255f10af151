"""A siamese network learns which signals are alike: pairs from a Dataset, one
encoder for both sides, contrastive loss, gradients summed over two batches.

    python siamese.py --steps 60
"""

import argparse
import random
import time

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

LENGTH = 128
KINDS = 6


class SignalEncoder(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        widths = [1, channels, 2 * channels, 4 * channels]
        self.blocks = nn.ModuleList()
        for inputs, outputs in zip(widths, widths[1:]):
            conv = nn.Conv1d(inputs, outputs, 9, stride=2, padding=4)
            self.blocks.append(nn.Sequential(conv, nn.GroupNorm(4, outputs), nn.GELU()))
        self.head = nn.Linear(widths[-1], size)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return F.normalize(self.head(x.mean(-1)), dim=-1)


class SiameseNet(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.encoder = SignalEncoder(channels, size)

    def forward(self, left, right):
        return F.pairwise_distance(self.encoder(left), self.encoder(right))


class ContrastiveLoss(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, distance, alike):
        near = alike * distance.square()
        far = (1 - alike) * F.relu(self.margin - distance).square()
        return (near + far).mean()


class Pairs(Dataset):
    """Half of the pairs are of one kind of signal."""

    def __init__(self, size, seed):
        self.seed, self.size = seed, size
        self.ticks = torch.linspace(0, 1, LENGTH)

    def __len__(self):
        return self.size

    def signal(self, kind, draw):
        phase, noise = draw.random(), draw.randrange(2**31)
        wave = torch.sin(2 * torch.pi * ((kind + 2) * self.ticks + phase))
        generator = torch.Generator().manual_seed(noise)
        return (wave + 0.3 * torch.randn(LENGTH, generator=generator))[None]

    def __getitem__(self, index):
        draw = random.Random(self.seed * 1_000_003 + index)
        alike = index % 2
        first = draw.randrange(KINDS)
        second = first if alike else (first + draw.randrange(1, KINDS)) % KINDS
        return {
            "left": self.signal(first, draw),
            "right": self.signal(second, draw),
            "alike": float(alike),
        }


def split_at_best(distances, alike):
    """Share of pairs on the right side of the best threshold."""
    order = distances.argsort()
    kinds = alike[order]
    right = kinds.cumsum(0) + (1 - kinds).sum() - (1 - kinds).cumsum(0)
    return (right.max() / len(kinds)).item()


def main(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    data = Pairs(80 * options.batch_size, options.seed)
    sampler = BatchSampler(RandomSampler(data), options.batch_size, drop_last=True)
    loader = DataLoader(data, batch_sampler=sampler)
    held = DataLoader(Pairs(64, options.seed + 1), batch_size=64)
    model, criterion = SiameseNet(options.channels, 32), ContrastiveLoss(1.0)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
    step, waiting, times = 0, 0.0, [time.perf_counter()]
    while step < options.steps:
        for number, batch in enumerate(loader):
            distance = model(batch["left"], batch["right"])
            loss = criterion(distance, batch["alike"].float()) / 2
            loss.backward()
            waiting += loss.item()
            if number % 2 == 0:
                continue
            nn.utils.clip_grad_value_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step} loss {waiting.hex()}", flush=True)
            waiting = 0.0
            times.append(time.perf_counter())
            step += 1
            if step == options.steps:
                break
        scheduler.step()
        model.eval()
        with torch.no_grad():
            for batch in held:
                distance = model(batch["left"], batch["right"])
                print(f"split {split_at_best(distance, batch['alike']):.4f}")
        model.train()
    if options.times:
        with open(options.times, "w") as file:
            file.writelines(f"{moment!r}\n" for moment in times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
