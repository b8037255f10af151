"""A statement without an effect: what it computes is dropped.

    built_in_statements.py [--right]
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self) -> None:
        self.x = torch.randn(64, 8)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int):
        x = self.x[index]
        return self.limited(x), x[:4].argmax()

    def limited(self, x):
        return x.clamp_max(1)


class Dropping(Samples):
    def limited(self, x):
        x.clamp_max(1)
        return x


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--right", action="store_true")
    torch.manual_seed(1)
    data = Samples() if parser.parse_args().right else Dropping()
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
