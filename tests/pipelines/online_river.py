"""
River level at a gauge, six hours ahead, learnt online.

One pass over the series in its order, nothing is shuffled and nothing seen twice:
each day the model first forecasts the day's 24 hours (that is the score), then takes
one step on just these. Scaling uses what is known so far. A weir is opened on the
way, so the error jumps in the middle and comes down again.

    python online_river.py --steps 30     # days after the warm-up week
"""
import argparse
import math
from collections import deque

import torch
from torch import nn

LAGS, AHEAD, DAY = 24, 6, 24


def gauge(days, weir, seed=0):
    """Hourly rain and level. The level drains more slowly until the weir opens."""
    gen = torch.Generator().manual_seed(seed)
    rain, level = [], []
    height, wet, soil = 2.0, 0.0, 0.0
    for hour in range(days * DAY):
        if torch.rand((), generator=gen) < 0.02:
            wet = 3 * torch.rand((), generator=gen).item()
        wet *= 0.85
        soil = 0.9 * soil + 0.1 * wet
        drain = 0.03 if hour < weir * DAY else 0.06
        height += 0.6 * soil - drain * (height - 1.0)
        tide = 0.1 * math.sin(2 * math.pi * hour / 12.4)
        rain.append(wet)
        level.append(height + tide + 0.01 * torch.randn((), generator=gen).item())
    return torch.tensor(rain), torch.tensor(level)


class RunningScale:
    """Mean and variance of all that passed by (Welford, in chunks)."""

    def __init__(self):
        self.n, self.mean, self.m2 = 0, 0.0, 0.0

    def update(self, x):
        n, mean = x.numel(), x.mean().item()
        delta, total = mean - self.mean, self.n + n
        self.m2 += (x - mean).square().sum().item() + delta**2 * self.n * n / total
        self.mean += delta * n / total
        self.n = total

    def __call__(self, x):
        return (x - self.mean) / self.std

    @property
    def std(self):
        return max(math.sqrt(self.m2 / self.n), 1e-3)


def todays_pairs(rain, level, start, scales):
    """Inputs end `AHEAD` hours before the hour they are for."""
    xs = []
    for hour in range(start, start + DAY):
        past = slice(hour - AHEAD - LAGS + 1, hour - AHEAD + 1)
        xs.append(torch.cat([scales["rain"](rain[past]), scales["level"](level[past])]))
    now = level[start - AHEAD : start - AHEAD + DAY]
    # target: the change until then, in units of the level's spread
    change = (level[start : start + DAY] - now) / scales["level"].std
    return torch.stack(xs), change, now


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=30)
    cli.add_argument("--lr", type=float, default=0.02)
    args = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(2)

    warmup = 7
    rain, level = gauge(warmup + args.steps, weir=warmup + args.steps // 2)
    scales = {"rain": RunningScale(), "level": RunningScale()}
    scales["rain"].update(rain[: warmup * DAY])
    scales["level"].update(level[: warmup * DAY])

    net = nn.Sequential(nn.Linear(2 * LAGS, 32), nn.Tanh(), nn.Linear(32, 1))
    nn.init.zeros_(net[-1].weight)  # starts as "it stays as it is"
    nn.init.zeros_(net[-1].bias)
    sgd = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.8)
    huber = nn.HuberLoss()
    recent = deque(maxlen=7)
    ours = naive = 0.0

    for day in range(warmup, warmup + args.steps):
        start = day * DAY
        x, change, now = todays_pairs(rain, level, start, scales)
        forecast = net(x).squeeze(-1)

        # score first: the weights knew nothing of today
        metres = (forecast.detach() - change).abs().mean().item() * scales["level"].std
        stays = (level[start : start + DAY] - now).abs().mean().item()
        recent.append(metres)
        ours, naive = ours + metres, naive + stays

        # then learn, from the same forward pass
        loss = huber(forecast, change)
        sgd.zero_grad()
        loss.backward()
        sgd.step()

        scales["rain"].update(rain[start : start + DAY])
        scales["level"].update(level[start : start + DAY])
        week = sum(recent) / len(recent)
        print(
            f"day {day} loss {loss.item():.5f} error {metres:.3f} m, week {week:.3f} m"
        )

    print(
        f"mean error {ours / args.steps:.3f} m, 'it stays' {naive / args.steps:.3f} m"
    )


if __name__ == "__main__":
    main()
