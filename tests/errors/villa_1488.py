"""Finds the fibres in slices of papyrus (a small convolutional net).

After ScrollPrize/villa, issue 1488.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SIDE = 24


def slices(count, seed):
    """Pictures with two slanted fibres each, and the masks of the fibres."""
    generator = torch.Generator().manual_seed(seed)
    grid = torch.linspace(-1, 1, SIDE)
    draw = torch.rand(count, 2, 2, 1, 1, generator=generator)
    angle, offset = 3.14 * draw[:, :, 0], 1.2 * draw[:, :, 1] - 0.6
    across = torch.cos(angle) * grid + torch.sin(angle) * grid[:, None] - offset
    mask = (across.abs() < 0.1).any(1).float()[:, None]
    noise = torch.randn(count, 1, SIDE, SIDE, generator=generator)
    return 0.9 * mask + 0.5 * noise, mask


class SoftDiceLoss(nn.Module):
    def __init__(self, apply_nonlin=None, smooth=1.0):
        super().__init__()
        self.apply_nonlin, self.smooth = apply_nonlin, smooth

    def forward(self, guess, mask):
        if self.apply_nonlin is not None:
            guess = self.apply_nonlin(guess)
        shared = (guess * mask).sum((1, 2, 3))
        total = guess.square().sum((1, 2, 3)) + mask.sum((1, 2, 3))
        return 1 - ((2 * shared + self.smooth) / (total + self.smooth)).mean()


class FibreNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        layers = []
        for inputs, gap in ((1, 1), (width, 2), (width, 4)):
            layers += [
                nn.Conv2d(inputs, width, 3, padding=gap, dilation=gap, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
        self.body = nn.Sequential(*layers, nn.Conv2d(width, 1, 1))

    def forward(self, picture):
        return self.body(picture)


def create_losses(fixed):
    """Losses of the logits with their weights."""
    dice = SoftDiceLoss(apply_nonlin=torch.sigmoid if fixed else None)
    return [(nn.BCEWithLogitsLoss(), 1.0), (dice, 1.0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = slices(512, args.seed), slices(128, args.seed + 1)
    loader = DataLoader(TensorDataset(*train), batch_size=16, shuffle=True)
    model, losses = FibreNet(), create_losses(args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for picture, mask in loader:
            logits = model(picture)
            loss = sum(weight * one(logits, mask) for one, weight in losses)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        model.eval()
        with torch.no_grad():
            found = model(valid[0]) > 0
        real = valid[1].bool()
        shared = (found & real).sum() / (found | real).sum()
        print(f"epoch {epoch} overlap {shared.item():.4f}", flush=True)
    if args.prove:
        perfect = 20 * (2 * valid[1] - 1)
        left = losses[1][0](perfect, valid[1]).item()
        print(f"the second loss of perfect logits is {left:.4f}")
        print("fault shows:", "yes" if left > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
