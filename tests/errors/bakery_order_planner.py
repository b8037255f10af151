"""
How many rolls should each shop order for tomorrow?  The chain wants to be sold out on
no more than one day in ten, so the network predicts the 0.9 quantile of the demand.
"""
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Config:
    level: float = 0.9
    hidden: int = 32
    lr: float = 0.01
    batch: int = 100
    steps: int = 300
    fixed: bool = False
    prove: bool = False


def shop_days(n, seed):
    r = np.random.default_rng(seed)
    shop = r.integers(0, 12, n)
    weekday = r.integers(0, 7, n)
    temp = r.normal(14, 7, n)
    rain = (r.random(n) < 0.3).astype(float)
    holiday = (r.random(n) < 0.05).astype(float)
    size = np.linspace(0.6, 1.8, 12)[shop]
    profile = np.array([0.8, 0.85, 0.9, 0.95, 1.2, 1.5, 1.1])[weekday]
    mean = 100 * size * profile * (1 - 0.15 * rain) * (1 + 0.3 * holiday) + 0.8 * temp
    demand = mean * r.gamma(shape=12, scale=1 / 12, size=n)
    feats = np.concatenate(
        [
            np.eye(12)[shop],
            np.eye(7)[weekday],
            np.stack([(temp - 14) / 7, rain, holiday], 1),
        ],
        axis=1,
    )
    return (
        torch.tensor(feats, dtype=torch.float32),
        torch.tensor(demand / 100.0, dtype=torch.float32),
    )


class OrderNet(nn.Module):
    def __init__(self, d_in, hidden):
        super().__init__()
        self.a = nn.Linear(d_in, hidden)
        self.b = nn.Linear(hidden, hidden)
        self.c = nn.Linear(hidden, 1)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        h = h + torch.tanh(self.b(h))
        return self.c(h).squeeze(1)


def pinball(pred, target, level, fixed):
    err = target - pred if fixed else pred - target
    return torch.maximum(level * err, (level - 1) * err).mean()


class Planner:
    def __init__(self, cfg, d_in):
        self.cfg = cfg
        self.net = OrderNet(d_in, cfg.hidden)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.opt, T_max=cfg.steps
        )

    def step(self, x, y):
        loss = pinball(self.net(x), y, self.cfg.level, self.cfg.fixed)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.sched.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, x, y):
        order = self.net(x)
        return {
            "mean order": 100 * order.mean().item(),
            "left over per day": 100 * (order - y).clamp(min=0).mean().item(),
            "enough on share of days": (order >= y).float().mean().item(),
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=Config.steps)
    parser.add_argument("--level", type=float, default=Config.level)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    a = parser.parse_args()
    cfg = Config(steps=a.steps, level=a.level, fixed=a.fixed, prove=a.prove)

    torch.manual_seed(5)
    x, y = shop_days(4000, seed=1)
    xv, yv = shop_days(2000, seed=2)
    planner = Planner(cfg, x.shape[1])
    gen = torch.Generator().manual_seed(5)

    history = []
    for i in range(cfg.steps):
        rows = torch.randint(0, len(x), (cfg.batch,), generator=gen)
        history.append(planner.step(x[rows], y[rows]))
        if (i + 1) % 50 == 0:
            print(f"{i + 1:5d} steps, loss {np.mean(history[-50:]):.4f}")

    result = planner.evaluate(xv, yv)
    for k, v in result.items():
        print(f"  {k:26s} {v:8.3f}")

    if cfg.prove:
        # optimum of the criterion over constants, against the empirical quantile
        grid = torch.linspace(yv.min(), yv.max(), 400)
        cost = torch.stack(
            [pinball(g.expand_as(yv), yv, cfg.level, cfg.fixed) for g in grid]
        )
        best = grid[cost.argmin()].item()
        want = torch.quantile(yv, cfg.level).item()
        print(f"cheapest constant {best:.3f}, empirical quantile {want:.3f}")
        bad = abs(best - want) > 0.05
        print("fault shows:", "yes" if bad else "no")


if __name__ == "__main__":
    main()
