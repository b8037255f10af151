"""Keeps the level of a tank with two valves: TD3 with smoothed targets, two critics and
a policy that learns at every second step.

    python td3_valve.py --episodes 12
"""

import argparse
import copy

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


class Tank:
    """Level and temperature of a tank with a cold and a hot inflow."""

    state_size, action_size, horizon = 4, 2, 40

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.level, self.warmth = self.rng.uniform(-1, 1, 2)
        self.goal = self.rng.uniform(-0.7, 0.7, 2)
        self.time = 0
        return self.observe()

    def observe(self):
        return np.array([self.level, self.warmth, *self.goal], dtype=np.float32)

    def step(self, action):
        cold, hot = np.clip(action, -1, 1)
        self.level = 0.95 * self.level + 0.12 * (cold + hot)
        self.warmth = 0.95 * self.warmth + 0.12 * (hot - cold)
        self.warmth += 0.01 * self.rng.normal()
        self.time += 1
        error = abs(self.level - self.goal[0]) + abs(self.warmth - self.goal[1])
        broken = abs(self.level) > 2.0
        reward = -error - 0.02 * (cold**2 + hot**2) - 5.0 * broken
        return self.observe(), reward, broken, self.time >= self.horizon


class Buffer:
    def __init__(self, size, state, action):
        self.rows = np.zeros((size, 2 * state + action + 2), dtype=np.float32)
        self.splits = np.cumsum([state, action, state, 1])
        self.count = 0

    def add(self, state, action, following, reward, terminal):
        row = np.concatenate([state, action, following, [reward, terminal]])
        self.rows[self.count % len(self.rows)] = row
        self.count += 1

    def sample(self, count, rng):
        rows = rng.integers(min(self.count, len(self.rows)), size=count)
        parts = np.split(self.rows[rows], self.splits, axis=1)
        return [torch.from_numpy(part) for part in parts]


def mlp(inputs, outputs, *last):
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, outputs), *last,
    )  # fmt: skip


class TD3:
    def __init__(self, state, action, gamma=0.95, tau=0.02):
        self.gamma, self.tau, self.updates = gamma, tau, 0
        self.actor = mlp(state, action, nn.Tanh())
        self.critics = nn.ModuleList(mlp(state + action, 1) for _ in range(2))
        self.slow_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.slow_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=2e-3)

    @torch.no_grad()
    def act(self, state):
        return self.actor(torch.from_numpy(state)[None])[0].numpy()

    def update(self, state, action, following, reward, terminal):
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(action)).clamp(-0.4, 0.4)
            chosen = (self.slow_actor(following) + noise).clamp(-1, 1)
            joint = torch.cat([following, chosen], 1)
            worst = torch.min(*(critic(joint) for critic in self.slow_critics))
            target = reward + self.gamma * (1 - terminal) * worst
        joint = torch.cat([state, action], 1)
        critic_loss = sum(F.mse_loss(c(joint), target) for c in self.critics)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        self.updates += 1
        if self.updates % 2 == 0:
            self.critics.requires_grad_(False)
            joint = torch.cat([state, self.actor(state)], 1)
            actor_loss = -self.critics[0](joint).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            self.critics.requires_grad_(True)
            self.follow()
        return critic_loss.item()

    @torch.no_grad()
    def follow(self):
        for fast, slow in (
            (self.actor, self.slow_actor),
            (self.critics, self.slow_critics),
        ):
            for source, follower in zip(fast.parameters(), slow.parameters()):
                follower.lerp_(source, self.tau)


def evaluate(agent, seed, episodes=10):
    rng, total = np.random.default_rng(seed), 0.0
    for _ in range(episodes):
        tank, over = Tank(rng), False
        state = tank.reset()
        while not over:
            state, reward, broken, late = tank.step(agent.act(state))
            total, over = total + reward, broken or late
    return total / episodes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=14)
    parser.add_argument("--warm-up", type=int, default=160)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    tank = Tank(rng)
    agent = TD3(tank.state_size, tank.action_size)
    buffer = Buffer(4000, tank.state_size, tank.action_size)
    seen = 0
    for episode in range(args.episodes):
        state, over, gain = tank.reset(), False, 0.0
        while not over:
            if seen < args.warm_up:
                action = rng.uniform(-1, 1, tank.action_size)
            else:
                action = agent.act(state) + 0.15 * rng.normal(size=tank.action_size)
                action = np.clip(action, -1, 1)
            following, reward, broken, late = tank.step(action)
            buffer.add(state, action, following, reward, float(broken))
            state, over = following, broken or late
            gain, seen = gain + reward, seen + 1
            if seen >= args.warm_up:
                loss = agent.update(*buffer.sample(64, rng))
                if agent.updates % 20 == 0:
                    print(f"step {agent.updates} loss {loss:.4f}", flush=True)
        print(f"episode {episode} return {gain:.2f}")
    print(f"greedy at the end {evaluate(agent, args.seed + 99):.2f}")


if __name__ == "__main__":
    main()
