"""Autoencoder of grey pictures of leaves. Outputs end in a sigmoid and targets are in
[0, 1], grey in between, so binary cross-entropy on probabilities is right and has a
floor well above zero; the reconstruction error is printed beside it. A sixth of the
input's pixels is blanked out in training only. The code is a tanh.

    python grey_autoencoder_leaves.py --epochs 2
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SIDE = 20


def leaves(count, seed):
    """Ellipses with a midrib, turned, softened at the edge, on a light background."""
    rng = torch.Generator().manual_seed(seed)
    turn, length, breadth, shade = torch.rand(4, count, 1, 1, generator=rng)
    axis = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle = 3.1416 * turn
    along = x * angle.cos() + y * angle.sin()
    across = -x * angle.sin() + y * angle.cos()
    inside = 1 - (along / (0.5 + 0.4 * length)) ** 2
    inside = inside - (across / (0.2 + 0.3 * breadth)) ** 2
    body = torch.sigmoid(6 * inside) * (0.4 + 0.5 * shade)
    rib = torch.exp(-((across / 0.06) ** 2)) * torch.sigmoid(6 * inside)
    grey = 0.9 - body + 0.4 * rib
    grey = grey + 0.03 * torch.randn(count, SIDE, SIDE, generator=rng)
    return TensorDataset(grey.clamp(0, 1)[:, None])


class LeafCoder(nn.Module):
    def __init__(self, code=12, width=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 4, stride=2, padding=1), nn.LeakyReLU(0.1),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.LeakyReLU(0.1),
            nn.Flatten(), nn.Linear(2 * width * 25, code), nn.Tanh(),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(code, 2 * width * 25), nn.LeakyReLU(0.1),
            nn.Unflatten(1, (2 * width, 5, 5)),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, grey):
        if self.training:
            grey = torch.where(torch.rand_like(grey) < 1 / 6, 1.0, grey)
        return self.decoder(self.encoder(grey))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    squared = count = 0
    for (grey,) in loader:
        squared += (model(grey) - grey).square().sum().item()
        count += grey.numel()
    return (squared / count) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    loader = DataLoader(leaves(1536, args.seed), batch_size=48, shuffle=True)
    held = DataLoader(leaves(300, args.seed + 1), batch_size=100)
    model, criterion = LeafCoder(), nn.BCELoss()
    optimizer = torch.optim.RAdam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.75)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for (grey,) in loader:
            guess = model(grey)
            loss = criterion(guess, grey)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                error = F.mse_loss(guess, grey).sqrt().item()
            print(f"step {step} loss {loss.item():.4f} error {error:.4f}", flush=True)
            step += 1
        schedule.step()
        print(f"epoch {epoch} held out error {evaluate(model, held):.4f}", flush=True)


if __name__ == "__main__":
    main()
