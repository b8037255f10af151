"""A classifier with dropout, two parameter groups and a rate that is halved every five
steps. Options bring in what a healthy run of the same script shows to be wrong, or was
meant."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, share, activation, normalised):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 3)
        self.share, self.activation, self.normalised = share, activation, normalised

    def forward(self, x):
        hidden = self.activation(self.body(x))
        hidden = F.layer_norm(hidden, hidden.shape[-self.normalised :])
        return self.head(F.dropout(hidden, self.share, self.training))


def main() -> None:
    cli = argparse.ArgumentParser()
    cli.add_argument("--every", type=int, default=5, help="steps of one rate")
    cli.add_argument("--share", type=float, default=0.25, help="that dropout drops")
    cli.add_argument("--activation", choices=("relu", "tanh"), default="relu")
    cli.add_argument("--normalised", type=int, default=1, help="dimensions")
    cli.add_argument("--rate", type=float, default=0.1)
    cli.add_argument("--seed", type=int, default=1)
    args = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    net = Net(args.share, getattr(torch, args.activation), args.normalised)
    groups = [
        {"params": net.body.parameters()},
        {"params": net.head.parameters(), "lr": args.rate / 10},
    ]
    optimizer = torch.optim.SGD(groups, lr=args.rate)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, args.every, 0.5)
    for _ in range(30):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
