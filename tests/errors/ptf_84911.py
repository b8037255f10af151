"""PTF-84911: the optimizer holds frozen parameters only.

For transfer learning everything but the normalisation layers is frozen, the
new head too, and the optimizer gets the head. Steps update nothing; the
running statistics move, so the loss does as well. --fixed leaves the head
trainable.
"""

import argparse

import torch
from torch import nn


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.stem(x))).mean(dim=(2, 3)))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--steps", type=int, default=12)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Pictures()
    for name, parameter in net.named_parameters():
        trainable = name.startswith("bn") or (options.fixed and name.startswith("fc"))
        parameter.requires_grad = trainable
    optimizer = torch.optim.Adam(net.fc.parameters(), lr=1e-2)
    criterion = nn.CrossEntropyLoss()
    for step in range(options.steps):
        labels = torch.randint(4, (8,))
        x = torch.randn(8, 3, 16, 16) * (1 + labels[:, None, None, None])
        optimizer.zero_grad()
        loss = criterion(net(x), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
