"""Trains a small detector of calls in made-up spectrograms.

One in eight recordings contains a call, a rising tone in noise. Batches are drawn so
that both classes are seen alike; noise and masks are added to each recording anew.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class Spectrograms(Dataset):
    def __init__(self, count, seed, augment):
        generator = torch.Generator().manual_seed(seed)
        self.labels = (torch.rand(count, generator=generator) < 0.125).long()
        self.labels[:2] = torch.tensor([0, 1])
        self.items = 0.6 * torch.randn(count, 1, 16, 16, generator=generator)
        for i in torch.nonzero(self.labels).flatten():
            start = torch.randint(6, (1,), generator=generator).item()
            for t in range(10):
                self.items[i, 0, start + t // 2 + 2, t + 3] += 1.5
        self.augment = augment
        self.read = set()

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        self.read.add(int(index))
        item = self.items[index]
        if self.augment:
            item = item + 0.8 * torch.randn_like(item)
            first = torch.randint(13, (1,)).item()
            item[:, :, first : first + 3] = 0
        return item, self.labels[index]


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classify = nn.Linear(64, 2)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


def make_loader(data, batch_size, per_sample):
    counts = torch.bincount(data.labels, minlength=2)
    class_weights = 1.0 / counts.double()
    weights = class_weights[data.labels] if per_sample else class_weights
    sampler = WeightedRandomSampler(weights, num_samples=len(data), replacement=True)
    return DataLoader(data, batch_size=batch_size, sampler=sampler, drop_last=True)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=40)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = Spectrograms(512, seed=3, augment=True)
    loader = make_loader(data, batch_size=32, per_sample=options.fixed)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    step = 0
    while step < options.steps:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            if step == options.steps:
                break
    if options.prove:
        print("fault shows:", "yes" if len(data.read) <= 2 else "no")


if __name__ == "__main__":
    main()
