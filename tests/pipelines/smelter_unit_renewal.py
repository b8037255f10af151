"""Slag viscosity from furnace readings, learned from a stream that keeps changing.

The ore mix changes without notice.  Every charge is predicted first and learned from
afterwards, once.  Hidden units that have become useless are renewed while the furnace runs.
"""
import argparse
import collections
import json
import logging
import math
import os
import tempfile

import torch
from torch import nn

logger = logging.getLogger("smelter")


class OreStream:
    """Charges of readings; the law behind them is redrawn every `period` charges."""

    def __init__(self, seed, charge=16, period=120, sensors=12):
        self.g = torch.Generator().manual_seed(seed)
        self.charge, self.period, self.sensors = charge, period, sensors
        self.t = 0

    def _new_ore(self):
        s = self.sensors
        self.a = torch.randn(s, 10, generator=self.g) / math.sqrt(s)
        self.b = torch.randn(10, generator=self.g) / math.sqrt(5)
        self.level = 20 * torch.rand(1, generator=self.g)
        self.offset = 4 * torch.randn(s, generator=self.g)

    def next(self):
        if self.t % self.period == 0:
            self._new_ore()
        self.t += 1
        x = torch.randn(self.charge, self.sensors, generator=self.g)
        y = torch.relu(2 * x @ self.a) @ self.b
        y = y + 0.1 * torch.randn(self.charge, generator=self.g)
        return x * 5 + self.offset, 3 * y + self.level


class RunningScale:
    """Exponentially forgetting mean and variance."""

    def __init__(self, size, rate=0.02):
        self.mean, self.var = torch.zeros(size), torch.ones(size)
        self.rate, self.seen = rate, 0

    def update(self, x):
        self.seen += 1
        rate = max(self.rate, 1.0 / self.seen)
        delta = x.mean(0) - self.mean
        self.mean = self.mean + rate * delta
        spread = (x - self.mean).pow(2).mean(0)
        self.var = (1 - rate) * self.var + rate * spread

    def forward(self, x):
        return ((x - self.mean) / (self.var + 1e-6).sqrt()).clamp(-5, 5)

    def backward(self, z):
        return z * (self.var + 1e-6).sqrt() + self.mean

    def state(self):
        return {"mean": self.mean, "var": self.var, "seen": self.seen}


class Regressor(nn.Module):
    def __init__(self, inputs, width=48):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, 1)]
        )
        for layer in self.layers:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        self.activity = []

    def forward(self, x):
        self.activity = []
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
            self.activity.append(x.detach())
        return self.layers[-1](x).squeeze(-1)


class UnitRenewal:
    """Replace the least useful mature units at a slow, steady rate."""

    def __init__(self, net, optimizer, rate=2e-4, maturity=60, decay=0.98):
        self.net, self.optimizer = net, optimizer
        self.rate, self.maturity, self.decay = rate, maturity, decay
        widths = [layer.out_features for layer in net.layers[:-1]]
        self.utility = [torch.zeros(w) for w in widths]
        self.mean_act = [torch.zeros(w) for w in widths]
        self.age = [torch.zeros(w) for w in widths]
        self.credit = [0.0] * len(widths)
        self.renewed = 0

    @torch.no_grad()
    def step(self):
        for k, act in enumerate(self.net.activity):
            into, out = self.net.layers[k], self.net.layers[k + 1]
            self.age[k] += 1
            self.mean_act[k].mul_(self.decay).add_((1 - self.decay) * act.mean(0))
            fresh = self.mean_act[k] / (1 - self.decay ** self.age[k])
            worth = (act - fresh).abs().mean(0) * out.weight.abs().sum(0)
            worth = worth / (into.weight.abs().sum(1) + 1e-8)
            self.utility[k].mul_(self.decay).add_((1 - self.decay) * worth)
            mature = (self.age[k] > self.maturity).nonzero().squeeze(1)
            self.credit[k] += self.rate * len(mature)
            while self.credit[k] >= 1 and len(mature):
                self.credit[k] -= 1
                corrected = self.utility[k] / (1 - self.decay ** self.age[k])
                unit = mature[corrected[mature].argmin()].item()
                self._renew(k, unit, fresh[unit], into, out)
                mature = mature[mature != unit]

    def _renew(self, k, unit, mean, into, out):
        out.bias += out.weight[:, unit] * mean
        bound = math.sqrt(6.0 / into.in_features)
        into.weight[unit].uniform_(-bound, bound)
        into.bias[unit] = 0.0
        out.weight[:, unit] = 0.0
        self._forget(into.weight, unit)
        self._forget(into.bias, unit)
        self._forget(out.weight, (slice(None), unit))
        for record in (self.utility, self.mean_act, self.age):
            record[k][unit] = 0.0
        self.renewed += 1

    def _forget(self, param, where):
        state = self.optimizer.state.get(param, {})
        for key in ("exp_avg", "exp_avg_sq"):
            if key in state:
                state[key][where] = 0.0


class Operator:
    """Predict, compare, learn, renew."""

    def __init__(self, stream, lr, rate):
        self.stream = stream
        self.net = Regressor(stream.sensors)
        self.optimizer = torch.optim.Adam(
            self.net.parameters(), lr=lr, betas=(0.8, 0.99)
        )
        self.renewal = UnitRenewal(self.net, self.optimizer, rate)
        self.inputs, self.outputs = RunningScale(stream.sensors), RunningScale(1)
        self.recent = collections.deque(maxlen=stream.period)
        self.plain = collections.deque(maxlen=stream.period)

    def tick(self):
        x, y = self.stream.next()
        z = self.net(self.inputs.forward(x))
        prediction = self.outputs.backward(z.detach())
        self.recent.append((prediction - y).pow(2).mean().item())
        self.plain.append((self.outputs.mean - y).pow(2).mean().item())

        target = self.outputs.forward(y[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(z, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.renewal.step()
        self.inputs.update(x)
        self.outputs.update(y[:, None])
        return loss.item()

    def rmse(self):
        mean = lambda d: math.sqrt(sum(d) / len(d))
        return mean(self.recent), mean(self.plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1440, help="charges to process")
    parser.add_argument("--period", type=int, default=120)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--renewal-rate", type=float, default=4e-4)
    parser.add_argument("--seed", type=int, default=71)
    args = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
    )

    torch.manual_seed(args.seed)
    stream = OreStream(args.seed, period=args.period)
    operator = Operator(stream, args.lr, args.renewal_rate)
    diary = []
    for t in range(1, args.steps + 1):
        loss = operator.tick()
        if t % args.period == 0 or t == args.steps:
            ours, mean_only = operator.rmse()
            diary.append({"charge": t, "rmse": ours, "mean_only": mean_only})
            logger.info(
                "charge %5d  ore %2d  rmse %.3f (running mean %.3f)  loss %.4f  renewed %d",
                *(
                    t,
                    (t - 1) // args.period,
                    ours,
                    mean_only,
                    loss,
                    operator.renewal.renewed,
                ),
            )
    folder = tempfile.mkdtemp(prefix="smelter_")
    torch.save(
        {
            "net": operator.net.state_dict(),
            "optimizer": operator.optimizer.state_dict(),
            "inputs": operator.inputs.state(),
            "outputs": operator.outputs.state(),
        },
        os.path.join(folder, "operator.pt"),
    )
    with open(os.path.join(folder, "diary.json"), "w") as handle:
        json.dump(diary, handle)


if __name__ == "__main__":
    main()
