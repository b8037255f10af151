"""Day-ahead output of a solar park, keeping the best checkpoint."""
import argparse
import copy
import math

import numpy as np
import torch
from torch import nn

FEATURES = 7


def weather(n, seed):
    rng = np.random.default_rng(seed)
    hour = rng.uniform(5, 21, n)
    day = rng.uniform(0, 365, n)
    cloud = rng.beta(1.2, 1.6, n)
    temp = 12 + 10 * np.sin(2 * np.pi * (day - 110) / 365) + rng.normal(0, 3, n)
    wind = rng.gamma(2.0, 1.5, n)
    sun = np.clip(np.sin(np.pi * (hour - 5) / 16), 0, None)
    season = 0.7 + 0.3 * np.sin(2 * np.pi * (day - 80) / 365)
    power = 50 * sun * season * (1 - 0.75 * cloud**2) * (
        1 - 0.004 * (temp - 25)
    ) + rng.normal(0, 1.0, n)
    x = np.stack(
        [
            np.sin(np.pi * hour / 12),
            np.cos(np.pi * hour / 12),
            np.sin(2 * np.pi * day / 365),
            np.cos(2 * np.pi * day / 365),
            cloud,
            temp / 20,
            wind / 5,
        ],
        1,
    )
    return torch.tensor(x, dtype=torch.float32), torch.tensor(
        power, dtype=torch.float32
    )


class SolarNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(FEATURES, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return 50 * self.net(x).squeeze(-1)


class BestKeeper:
    def __init__(self, better_if_lower):
        self.lower = better_if_lower
        self.score = math.inf if better_if_lower else -math.inf
        self.epoch = None
        self.state = None

    def offer(self, score, epoch, model):
        if (score < self.score) if self.lower else (score > self.score):
            self.score, self.epoch = score, epoch
            self.state = copy.deepcopy(model.state_dict())
            return True
        return False


def rmse(model, x, y):
    model.eval()
    with torch.no_grad():
        v = (model(x) - y).pow(2).mean().sqrt().item()
    model.train()
    return v


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=15)
    cli.add_argument("--batch", type=int, default=64)
    cli.add_argument("--lr", type=float, default=3e-3)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    args = cli.parse_args()

    torch.manual_seed(9)
    x, y = weather(1280, 1)
    xv, yv = weather(300, 2)
    xt, yt = weather(300, 3)
    model = SolarNet()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    keeper = BestKeeper(better_if_lower=args.fixed)
    history = []

    for epoch in range(args.epochs):
        order = torch.randperm(len(x))
        total = 0.0
        for i in range(0, len(x), args.batch):
            idx = order[i : i + args.batch]
            loss = nn.functional.mse_loss(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(idx)
        score = rmse(model, xv, yv)
        history.append(score)
        keeper.offer(score, epoch, model)
        print(
            f"epoch {epoch:2d}  train mse {total / len(x):8.3f}  val rmse {score:.3f}"
        )

    model.load_state_dict(keeper.state)
    print(
        f"loaded the best checkpoint (epoch {keeper.epoch}); test rmse {rmse(model, xt, yt):.3f} MW"
    )

    if args.prove:
        lowest = int(np.argmin(history))
        print(
            f"kept epoch {keeper.epoch} with val rmse {keeper.score:.3f}; "
            f"lowest val rmse {history[lowest]:.3f} at epoch {lowest}"
        )
        print("fault shows:", "yes" if keeper.score > min(history) + 1e-9 else "no")


if __name__ == "__main__":
    main()
