"""Control of a valve learnt from logs alone: implicit Q-learning.

Three networks with an optimizer each: values by expectile regression, two critics in one
module with a slow target, a policy by regression with weights exp(advantage), clamped.
Logs are normalised by their own statistics, rewards scaled; no environment is touched
but in the evaluation. The policy's rate falls to 0, the others stay. The batch is the
same for the three.
"""
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Tank:
    """Level and inflow; the valve lets out water; level is to stay at 1."""

    def __init__(self, n, rng):
        self.rng = rng
        self.state = np.stack([rng.uniform(0, 2, n), rng.uniform(0.2, 0.8, n)], 1)

    def step(self, valve):
        level, inflow = self.state.T
        out = np.clip(valve, 0, 1) * np.sqrt(np.maximum(level, 0))
        level = np.clip(level + 0.3 * (inflow - out), 0, 3)
        inflow = np.clip(inflow + self.rng.normal(0, 0.05, len(level)), 0.1, 0.9)
        self.state = np.stack([level, inflow], 1)
        return self.state.copy(), -np.abs(level - 1) - 0.05 * np.abs(valve - 0.5)


def logs(rng, n=200, ticks=20):
    """An operator of changing diligence."""
    tank, rows = Tank(n, rng), []
    skill = rng.uniform(0, 1, n)
    for _ in range(ticks):
        before = tank.state.copy()
        good = np.clip(before[:, 1] + 0.8 * (before[:, 0] - 1), 0, 1)
        valve = np.where(rng.uniform(size=n) < skill, good, rng.uniform(0, 1, n))
        valve = np.clip(valve + rng.normal(0, 0.08, n), 0, 1)
        after, reward = tank.step(valve)
        rows.append(np.column_stack([before, valve, reward, after]))
    return torch.tensor(np.concatenate(rows), dtype=torch.float32)


def mlp(inputs, out, width=48):
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, out),
    )


class Critics(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(3, 1), mlp(3, 1)

    def forward(self, seen, valve):
        x = torch.cat([seen, valve], 1)
        return self.a(x).squeeze(1), self.b(x).squeeze(1)


@torch.no_grad()
def evaluate(policy, scale, ticks=20):
    tank, total = Tank(100, np.random.default_rng(99)), 0.0
    for _ in range(ticks):
        seen = (torch.tensor(tank.state, dtype=torch.float32) - scale[0]) / scale[1]
        valve = torch.sigmoid(policy(seen))[:, 0].numpy()
        total += tank.step(valve)[1].mean() / ticks
    return total


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=300)
    args = p.parse_args()
    torch.manual_seed(10)
    torch.set_num_threads(1)
    data = logs(np.random.default_rng(1))
    scale = data[:, :2].mean(0), data[:, :2].std(0)
    data[:, :2] = (data[:, :2] - scale[0]) / scale[1]
    data[:, 4:] = (data[:, 4:] - scale[0]) / scale[1]
    print(f"operators: {data[:, 3].mean():.4f}")
    value, critics, policy = mlp(2, 1), Critics(), mlp(2, 1)
    target = copy.deepcopy(critics).requires_grad_(False)
    v_opt = torch.optim.Adam(value.parameters(), lr=2e-3)
    q_opt = torch.optim.Adam(critics.parameters(), lr=2e-3)
    p_opt = torch.optim.Adam(policy.parameters(), lr=2e-3)
    p_schedule = torch.optim.lr_scheduler.CosineAnnealingLR(p_opt, args.steps)
    print(f"untrained policy: {evaluate(policy, scale):.4f}")
    for step in range(args.steps):
        rows = data[torch.randint(len(data), (128,))]
        seen, valve, reward, after = rows.split([2, 1, 1, 2], 1)
        with torch.no_grad():
            worth = torch.minimum(*target(seen, valve))
            future = value(after).squeeze(1)
        v = value(seen).squeeze(1)
        gap = worth - v
        v_loss = (torch.where(gap > 0, 0.8, 0.2) * gap.square()).mean()
        v_opt.zero_grad()
        v_loss.backward()
        v_opt.step()

        aim = reward.squeeze(1) + 0.9 * future
        q_loss = sum(F.mse_loss(q, aim) for q in critics(seen, valve))
        q_opt.zero_grad()
        q_loss.backward()
        q_opt.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), critics.parameters()):
                slow.lerp_(fast, 0.02)

        weight = torch.exp(5 * gap.detach()).clamp(max=20)
        off = torch.sigmoid(policy(seen)) - valve
        p_loss = (weight * off.square().squeeze(1)).mean()
        p_opt.zero_grad()
        p_loss.backward()
        p_opt.step()
        p_schedule.step()
        if step % 60 == 59 or step == args.steps - 1:
            print(
                f"step {step + 1:3d} value {v_loss.item():.4f} critics "
                f"{q_loss.item():.4f} policy {p_loss.item():.4f} "
                f"reward {evaluate(policy, scale):.4f}"
            )


if __name__ == "__main__":
    main()
