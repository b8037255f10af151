"""Federated temperature forecasts for homes: FedAdam on quantised client updates.

The server never computes a loss.  Clients run a few local SGD steps from the current weights and return the
difference, rounded stochastically to int8; the server writes the NEGATIVE weighted mean difference into .grad
("pseudo-gradient") and lets a stock Adam do the step.  Homes are sampled, some drop out, and a round with too
few answers is skipped.  Feature statistics are combined from sums, never from pooled rows.
"""
import argparse
import json
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FEATURES = ["inside", "outside", "sun", "heating", "hour_sin", "hour_cos"]


@dataclass(frozen=True)
class Plan:
    homes: int = 14
    per_round: int = 5
    minimum: int = 3
    dropout_rate: float = 0.2
    local_steps: int = 6
    local_batch: int = 32
    local_lr: float = 0.05
    server_lr: float = 0.02
    server_eps: float = 1e-3
    width: int = 24
    seed: int = 41


class Home:
    """A first-order thermal model with its own leakage, sun share and stove; row counts differ."""

    def __init__(self, number, plan):
        rng = np.random.default_rng(1000 * plan.seed + number)
        hours = int(rng.integers(200, 700))
        leak, gain, stove = (
            rng.uniform(0.05, 0.12),
            rng.uniform(0.2, 0.6),
            rng.uniform(0.7, 1.3),
        )
        inside, rows, target = 19.0, [], []
        phase = rng.uniform(-1, 1)
        for h in range(hours):
            day = 2 * np.pi * (h % 24) / 24
            outside = (
                5
                - 6 * np.cos(day - 0.6)
                + 3 * np.sin(h / 60 + phase)
                + rng.normal(0, 0.5)
            )
            sun = max(0.0, -np.cos(day)) * rng.uniform(0.3, 1)
            heat = float(inside < 20 + phase) * stove
            new = (
                inside
                + leak * (outside - inside)
                + gain * sun
                + 1.6 * heat
                + rng.normal(0, 0.05)
            )
            rows.append([inside, outside, sun, heat, np.sin(day), np.cos(day)])
            target.append(new - inside)
            inside = new
        cut = int(0.8 * hours)  # the future is held out, not random rows
        x, y = torch.tensor(rows, dtype=torch.float32), torch.tensor(
            target, dtype=torch.float32
        )
        self.x, self.y, self.x_test, self.y_test = x[:cut], y[:cut], x[cut:], y[cut:]
        self.gen = torch.Generator().manual_seed(number)

    def sums(self):
        both = torch.cat([self.x, self.y.unsqueeze(1)], 1).double()
        return len(both), both.sum(0), both.pow(2).sum(0)


def federated_scaling(homes):
    count, first, second = (sum(part) for part in zip(*(h.sums() for h in homes)))
    mean = first / count
    std = (second / count - mean**2).clamp_min(1e-8).sqrt()
    pooled = torch.cat([torch.cat([h.x, h.y.unsqueeze(1)], 1) for h in homes]).double()
    assert torch.allclose(
        std, pooled.std(0, unbiased=False), rtol=1e-4
    ), "a check that only a simulation can make"
    return mean.float(), std.float()


class Forecaster(nn.Module):
    def __init__(self, width, mean, std):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(len(FEATURES), width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x):
        """Standardised change of temperature within the next hour."""
        return self.net((x - self.mean[:-1]) / self.std[:-1]).squeeze(1)

    def scaled(self, y):
        return (y - self.mean[-1]) / self.std[-1]


def quantise(delta, gen):
    """Unbiased int8: E[dequantise(quantise(d))] = d."""
    scale = delta.abs().max().clamp_min(1e-12) / 127
    low = torch.floor(delta / scale)
    up = torch.rand(delta.shape, generator=gen) < (delta / scale - low)
    return (low + up).clamp(-127, 127).to(torch.int8), scale


def local_round(home, model, plan):
    """Runs at home. Returns the number of rows, the quantised differences and the mean local loss."""
    worker = Forecaster(plan.width, model.mean, model.std)
    worker.load_state_dict(model.state_dict())
    opt = torch.optim.SGD(
        worker.parameters(), lr=plan.local_lr
    )  # new at each round: homes keep no state
    losses = []
    for _ in range(plan.local_steps):
        pick = torch.randint(len(home.x), (plan.local_batch,), generator=home.gen)
        loss = F.mse_loss(worker(home.x[pick]), worker.scaled(home.y[pick]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    with torch.no_grad():
        packets = [
            quantise(w - s, home.gen)
            for w, s in zip(worker.parameters(), model.parameters())
        ]
    return len(home.x), packets, float(np.mean(losses))


class Server:
    def __init__(self, model, plan):
        self.model, self.plan, self.skipped = model, plan, 0
        self.opt = torch.optim.Adam(
            model.parameters(),
            lr=plan.server_lr,
            betas=(0.9, 0.99),
            eps=plan.server_eps,
        )
        self.rng = np.random.default_rng(plan.seed)

    def invite(self, homes):
        chosen = self.rng.choice(len(homes), self.plan.per_round, replace=False)
        return [homes[i] for i in chosen if self.rng.random() >= self.plan.dropout_rate]

    def apply(self, answers):
        if len(answers) < self.plan.minimum:
            self.skipped += 1
            return False
        rows = sum(n for n, *_ in answers)
        for k, p in enumerate(self.model.parameters()):
            mean_delta = sum(
                n / rows * packets[k][0].float() * packets[k][1]
                for n, packets, _ in answers
            )
            p.grad = -mean_delta  # a descent direction has the opposite sign
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        return True


@torch.no_grad()
def per_home_error(model, homes):
    """Root mean squared error in degrees, one value for each home."""
    out = []
    for h in homes:
        pred = model(h.x_test) * model.std[-1] + model.mean[-1]
        out.append((pred - h.y_test).pow(2).mean().sqrt().item())
    return np.array(out)


def check_quantiser():
    gen = torch.Generator().manual_seed(0)
    d = torch.randn(50, generator=gen)
    draws = torch.stack(
        [q.float() * s for q, s in (quantise(d, gen) for _ in range(400))]
    )
    assert (draws.mean(0) - d).abs().max() < 5e-3, "rounding must be unbiased"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=90, help="federated rounds")
    args = ap.parse_args()
    plan = Plan()
    torch.manual_seed(plan.seed)
    check_quantiser()
    homes = [Home(i, plan) for i in range(plan.homes)]
    model = Forecaster(plan.width, *federated_scaling(homes))
    server = Server(model, plan)
    constant = np.array(
        [(h.y_test - model.mean[-1]).pow(2).mean().sqrt().item() for h in homes]
    )
    start, curve = per_home_error(model, homes), []

    for rnd in range(1, args.steps + 1):
        answers = [local_round(h, model, plan) for h in server.invite(homes)]
        if server.apply(answers):
            curve.append(float(np.mean([loss for *_, loss in answers])))
        if rnd % 20 == 0:
            err = per_home_error(model, homes)
            print(
                json.dumps(
                    {
                        "round": rnd,
                        "answers": len(answers),
                        "local_loss": round(float(np.mean(curve[-10:])), 4),
                        "mean_rmse": round(err.mean(), 4),
                        "worst_rmse": round(err.max(), 4),
                    }
                )
            )

    end = per_home_error(model, homes)
    print(
        f"rmse per home: constant {constant.mean():.3f}, start {start.mean():.3f}, end {end.mean():.3f} "
        f"(worst {end.max():.3f}); rounds skipped {server.skipped}"
    )
    assert len(curve) + server.skipped == args.steps
    if args.steps >= 80:
        assert np.mean(curve[-10:]) < 0.5 * np.mean(curve[:3])
        assert end.mean() < 0.5 * constant.mean() and (end < start).all()


if __name__ == "__main__":
    main()
