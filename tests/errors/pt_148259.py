"""Fits a recurrent network to the load of a pump, with clipped gradients.

The number of weights is printed before the training.
After PyTorch, issue 148259.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

LENGTH, CHANNELS, MAX_NORM = 24, 4, 0.5


class LoadNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.gru = nn.GRU(CHANNELS, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, window):
        return self.head(self.gru(window)[0][:, -1]).squeeze(1)


def windows(count, seed):
    """Readings with rare spikes; the load hangs on a slow and a fast part of them."""
    generator = torch.Generator().manual_seed(seed)
    reading = torch.randn(count, LENGTH, CHANNELS, generator=generator)
    drift = reading.cumsum(1) / LENGTH**0.5
    load = 2 * drift[:, -1, 0] - reading[:, -4:, 1].sum(1) + drift[:, -1, 2].abs()
    spike = (torch.rand(count, generator=generator) < 0.03).float()
    return TensorDataset(reading, 3 + load + 8 * spike)


@torch.no_grad()
def error(model, data):
    window, load = data.tensors
    return F.l1_loss(model(window), load).item()


def gradient_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = windows(1600, args.seed), windows(400, args.seed + 1)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    model = LoadNet()
    parameters = model.parameters()
    if args.fixed:
        parameters = list(parameters)
    print(f"{sum(p.numel() for p in parameters)} weights", flush=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    step, longest = 0, 0.0
    for epoch in range(args.epochs):
        for window, load in loader:
            loss = F.mse_loss(model(window), load)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, MAX_NORM)
            if args.prove:
                longest = max(longest, gradient_norm(model))
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} error {error(model, valid):.4f}", flush=True)
    if args.prove:
        print(f"the longest gradient after clipping at {MAX_NORM}: {longest:.4f}")
        print("fault shows:", "yes" if longest > 1.01 * MAX_NORM else "no", flush=True)


if __name__ == "__main__":
    main()
