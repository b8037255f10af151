"""Tugboats push to their berths against the water's drag: PPO, the rate falls to zero.

Sixteen boats at once; time limits are bootstrapped. Each rollout serves four epochs, or
fewer where the policy has moved too far. The rate is written into the group and is
exactly 0 in the last update. The policy's loss is about zero at the first batch of a
rollout while its gradient is not, and the whole loss goes up and down with the scale of
the returns. Running scale of the observations in buffers that are replaced outside of
forward; last layer of the policy near zero.
"""

import argparse
import math

import torch
from torch import nn

BOATS, LENGTH, RATE = 16, 40, 3e-3


class Harbour:
    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)
        self.state = torch.zeros(BOATS, 4)
        self.time = torch.zeros(BOATS, dtype=torch.long)
        self.start(torch.ones(BOATS, dtype=torch.bool))

    def start(self, which):
        new = torch.randn(BOATS, 4, generator=self.generator)
        new[:, 2:] *= 0.1
        self.state = torch.where(which[:, None], new, self.state)
        self.time[which] = 0

    def step(self, push):
        push = push.clamp(-1, 1)
        speed = 0.9 * self.state[:, 2:] + 0.3 * push
        self.state = torch.cat([self.state[:, :2] + 0.3 * speed, speed], 1)
        self.time += 1
        reward = -self.state[:, :2].norm(dim=1) - 0.05 * push.pow(2).sum(1)
        over, last = self.time >= LENGTH, self.state.clone()
        self.start(over)
        return self.state.clone(), reward, over, last


class Pilot(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))
        self.register_buffer("count", torch.tensor(1e-4))
        self.body = nn.Sequential(
            nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh()
        )
        self.policy, self.value = nn.Linear(48, 2), nn.Linear(48, 1)
        self.log_spread = nn.Parameter(torch.full((2,), -0.5))
        gains = [(self.body[0], math.sqrt(2)), (self.body[2], math.sqrt(2))]
        for layer, gain in [*gains, (self.policy, 0.01), (self.value, 1.0)]:
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    @torch.no_grad()
    def observe(self, seen):
        count, apart = len(seen), seen.mean(0) - self.mean
        total = self.count + count
        squares = self.variance * self.count + seen.var(0) * count
        squares = squares + apart * apart * self.count * count / total
        self.variance = squares / total
        self.mean, self.count = self.mean + apart * count / total, total

    def forward(self, seen):
        scaled = (seen - self.mean) / (self.variance + 1e-8).sqrt()
        hidden = self.body(scaled.clamp(-5, 5))
        push = torch.distributions.Normal(self.policy(hidden), self.log_spread.exp())
        return push, self.value(hidden).squeeze(-1)


@torch.no_grad()
def rollout(harbour, pilot, seen):
    rows = []
    for _ in range(LENGTH):
        pushes, value = pilot(seen)
        push = pushes.sample()
        then, reward, over, last = harbour.step(push)
        log_chance = pushes.log_prob(push).sum(-1)
        rows.append((seen, push, log_chance, reward, value, pilot(last)[1], over))
        seen = then
    return seen, [torch.stack(column) for column in zip(*rows)]


def advantages(reward, value, next_value, over):
    advantage, last = torch.zeros_like(reward), torch.zeros(BOATS)
    for t in reversed(range(LENGTH)):
        error = reward[t] + 0.97 * next_value[t] - value[t]
        last = error + 0.97 * 0.95 * last * (~over[t])
        advantage[t] = last
    return advantage


def improve(pilot, optimizer, columns):
    for epoch in range(4):
        for rows in torch.randperm(LENGTH * BOATS).split(320):
            seen, push, before, advantage, returns = (c[rows] for c in columns)
            pushes, value = pilot(seen)
            log_ratio = pushes.log_prob(push).sum(-1) - before
            ratio = log_ratio.exp()
            if ((ratio - 1) - log_ratio).mean() > 0.05:
                return epoch + 1, loss.item()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = advantage * ratio.clamp(0.8, 1.2)
            loss = -torch.min(advantage * ratio, clipped).mean()
            loss = loss + 0.5 * (value - returns).pow(2).mean()
            loss = loss - 0.003 * pushes.entropy().sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(pilot.parameters(), 0.5)
            optimizer.step()
    return epoch + 1, loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8, help="rollouts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    harbour, pilot = Harbour(), Pilot()
    optimizer = torch.optim.Adam(pilot.parameters(), lr=RATE, eps=1e-5)
    seen = harbour.state.clone()
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / max(1, options.steps - 1))
        seen, columns = rollout(harbour, pilot, seen)
        states, push, log_chance, reward, value, next_value, over = columns
        advantage = advantages(reward, value, next_value, over)
        columns = (states, push, log_chance, advantage, advantage + value)
        columns = [column.flatten(0, 1) for column in columns]
        epochs, loss = improve(pilot, optimizer, columns)
        pilot.observe(columns[0])
        print(
            f"rollout {step} reward {reward.mean().item():.3f} loss {loss:.3f} "
            f"epochs {epochs}"
        )


if __name__ == "__main__":
    main()
