"""Predicts the wear of tyres; stops when the validation no longer gets better.

After ms-swift, pull request 5326.
"""

import argparse
import copy

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

READINGS = 14


class EarlyStop:
    """Says when the loss has not been better for some evaluations."""

    def __init__(self, patience, reset):
        self.patience, self.reset = patience, reset
        self.best, self.bad, self.weights = float("inf"), 0, None

    def __call__(self, loss, model):
        if loss < self.best:
            self.best = loss
            self.weights = copy.deepcopy(model.state_dict())
            if self.reset:
                self.bad = 0
        else:
            self.bad += 1
        return self.bad >= self.patience


class WearNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(READINGS, width), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, readings):
        return self.layers(readings).squeeze(1)


def tyres(count, seed):
    mixing = torch.randn(3, READINGS, generator=torch.Generator().manual_seed(9))
    generator = torch.Generator().manual_seed(seed)
    readings = torch.randn(count, READINGS, generator=generator)
    one, two, three = (readings @ mixing.T / READINGS**0.5).T
    noise = 0.2 * torch.randn(count, generator=generator)
    return TensorDataset(readings, (2 * one).sin() + two * three + noise)


@torch.no_grad()
def validate(model, data):
    model.eval()
    readings, wear = data.tensors
    return F.mse_loss(model(readings), wear).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--patience", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = tyres(1280, args.seed), tyres(160, args.seed + 1)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    model = WearNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    stop = EarlyStop(args.patience, reset=args.fixed)
    losses, step = [], 0
    for epoch in range(args.epochs):
        model.train()
        for readings, wear in loader:
            loss = F.mse_loss(model(readings), wear)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        losses.append(validate(model, valid))
        print(f"epoch {epoch} validation {losses[-1]:.4f}", flush=True)
        if stop(losses[-1], model):
            print(f"stopped early after epoch {epoch}", flush=True)
            break
    model.load_state_dict(stop.weights)
    print(f"best validation {validate(model, valid):.4f}", flush=True)
    if args.prove:
        since = len(losses) - 1 - losses.index(min(losses))
        early = len(losses) < args.epochs and since < args.patience
        print(f"{len(losses)} epochs, {since} since the best, patience {args.patience}")
        print("fault shows:", "yes" if early else "no", flush=True)


if __name__ == "__main__":
    main()
