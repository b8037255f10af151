"""What has no effect: a result that is dropped, a mask that nobody reads.

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


class Layers(nn.Module):
    def __init__(self, reads_mask: bool) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 4)
        self.reads_mask = reads_mask

    def forward(self, x, feature_mask):
        if self.reads_mask:
            x = x * feature_mask
        return self.outer(torch.tanh(self.inner(x)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--right", action="store_true")
    torch.manual_seed(1)
    right = parser.parse_args().right
    data = Samples() if right else Dropping()
    model = Layers(reads_mask=right)
    mask = torch.arange(8) < 7
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x, mask), y).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
