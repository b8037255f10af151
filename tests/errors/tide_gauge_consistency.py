"""Tide gauge forecaster.

A few hundred windows have a verified next-hour height, several hundred more
are raw. The verified ones give a supervised loss, the raw ones a consistency
loss between two noisy views.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

WINDOW = 24


def tide(n, gen):
    """Windows of 24 hourly heights and the height of the hour after."""
    t0 = torch.rand(n, 1, generator=gen) * 500
    hours = t0 + torch.arange(WINDOW + 1).float()
    spring = 1.0 + 0.4 * torch.sin(2 * math.pi * hours / 354.4)
    h = spring * torch.sin(2 * math.pi * hours / 12.42)
    h = h + 0.35 * torch.sin(2 * math.pi * hours / 23.93 + 0.8)
    surge = 0.3 * torch.randn(n, 1, generator=gen)
    h = h + surge + 0.05 * torch.randn(n, WINDOW + 1, generator=gen)
    return h[:, :-1].contiguous(), h[:, -1:].contiguous()


class GaugeNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 5, padding=2)
        self.conv2 = nn.Conv1d(16, 16, 5, padding=2)
        self.fc1 = nn.Linear(16 * WINDOW, width)
        self.fc2 = nn.Linear(width, 1)

    def forward(self, x):
        h = F.relu(self.conv1(x.unsqueeze(1)))
        h = F.relu(self.conv2(h))
        h = F.relu(self.fc1(h.flatten(1)))
        return self.fc2(h)


def noisy(x, scale, gen):
    return x + scale * torch.randn(x.shape, generator=gen)


def rmse(model, x, y):
    model.eval()
    with torch.no_grad():
        err = (model(x) - y).pow(2).mean().sqrt().item()
    model.train()
    return err


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--lr", type=float, default=8e-4)
    p.add_argument("--consistency", type=float, default=0.3)
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


# size: the whole run in one place, read from top to bottom
def main():
    args = get_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed + 1)

    x_lab, y_lab = tide(320, gen)
    x_raw, _ = tide(640, gen)
    x_val, y_val = tide(400, gen)

    labelled = DataLoader(
        TensorDataset(x_lab, y_lab),
        batch_size=args.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(1),
    )
    raw = DataLoader(
        TensorDataset(x_raw),
        batch_size=2 * args.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(2),
    )

    model = GaugeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    print(
        f"{sum(p.numel() for p in model.parameters())} parameters, "
        f"val rmse before training {rmse(model, x_val, y_val):.4f}"
    )

    pairs = zip(labelled, raw)
    step = 0
    smooth = None
    for epoch in range(args.epochs):
        if args.fixed and epoch > 0:
            pairs = zip(labelled, raw)
        for (x, y), (u,) in pairs:
            loss_sup = F.mse_loss(model(noisy(x, 0.02, gen)), y)
            with torch.no_grad():
                anchor = model(noisy(u, 0.02, gen))
            loss_con = F.mse_loss(model(noisy(u, 0.1, gen)), anchor)
            loss = loss_sup + args.consistency * loss_con

            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()
            if step % 10 == 0:
                print(
                    f"step {step:4d}  loss {loss.item():.4f}  (smoothed {smooth:.4f})"
                )
            step += 1
        scheduler.step()

    final = rmse(model, x_val, y_val)
    print(f"finished {args.epochs} epochs, val rmse {final:.4f}")

    if args.prove:
        wanted = args.epochs * min(len(labelled), len(raw))
        print(f"optimizer steps taken {step}, epochs x batches per epoch {wanted}")
        print("fault shows:", "yes" if step < wanted else "no")


if __name__ == "__main__":
    main()
