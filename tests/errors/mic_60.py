"""Classifies grains of pollen from measures, with a rate that falls with a power law.

After MIC, issue 60.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

MEASURES, KINDS = 12, 6


def grains(count, seed):
    centres = 1.5 * torch.randn(
        KINDS, 2, MEASURES, generator=torch.Generator().manual_seed(5)
    )
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (count,), generator=generator)
    form = torch.randint(2, (count,), generator=generator)
    noise = torch.randn(count, MEASURES, generator=generator)
    return TensorDataset(centres[kind, form] + noise, kind)


def network(width=48):
    return nn.Sequential(
        nn.Linear(MEASURES, width), nn.BatchNorm1d(width), nn.ReLU(),
        nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
        nn.Linear(width, KINDS),
    )  # fmt: skip


def power_law(args):
    """The function that LambdaLR asks at each step."""
    if args.fixed:
        return lambda step: (1 + args.gamma * step) ** -args.decay
    return lambda step: args.lr * (1 + args.gamma * step) ** -args.decay


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    measures, kind = data.tensors
    return (model(measures).argmax(1) == kind).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--gamma", type=float, default=0.01)
    parser.add_argument("--decay", type=float, default=0.75)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = grains(1536, args.seed), grains(512, args.seed + 1)
    loader = DataLoader(train, batch_size=48, shuffle=True, drop_last=True)
    model = network()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3, nesterov=True
    )
    scheduler = LambdaLR(optimizer, power_law(args))
    step, first_rate = 0, optimizer.param_groups[0]["lr"]
    for epoch in range(args.epochs):
        model.train()
        for measures, kind in loader:
            loss = F.cross_entropy(model(measures), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} accuracy {accuracy(model, valid):.4f}", flush=True)
    if args.prove:
        print(f"the rate of the first step was {first_rate:.6f}, asked {args.lr}")
        print("fault shows:", "yes" if first_rate < 0.9 * args.lr else "no", flush=True)


if __name__ == "__main__":
    main()
