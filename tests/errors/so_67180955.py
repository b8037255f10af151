"""SO-67180955: all workers of a loader draw the same random numbers.

Each worker begins with one seed of numpy's generator, as forked workers did
before torch seeded it for them: pictures are augmented in the same way in all of
them, in every pass. --fixed gives each worker a seed of its own.
"""

import argparse

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Flipped(Dataset):
    """Pictures that are shifted and covered with noise anew each time."""

    def __init__(self, count):
        self.labels = torch.arange(count) % 4
        self.pictures = torch.zeros(count, 1, 8, 8)
        for row, label in enumerate(self.labels.tolist()):
            self.pictures[row, :, 2 * label] = 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        noise = torch.from_numpy(numpy.random.normal(0, 0.1, (1, 8, 8)))
        shifted = self.pictures[index].roll(numpy.random.randint(3), -1)
        return shifted + noise.float(), self.labels[index]


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 24)
        self.output = nn.Linear(24, 4)

    def forward(self, pictures):
        return self.output(torch.relu(self.hidden(pictures.flatten(1))))


def seed_all_alike(worker):
    numpy.random.seed(0)


def seed_apart(worker):
    numpy.random.seed(torch.initial_seed() % 2**32)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--passes", type=int, default=3)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Rows()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(
        Flipped(32),
        batch_size=8,
        shuffle=True,
        num_workers=2,
        worker_init_fn=seed_apart if options.fixed else seed_all_alike,
    )
    for epoch in range(options.passes):
        for pictures, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(pictures), labels)
            loss.backward()
            optimizer.step()
        print(f"pass {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
