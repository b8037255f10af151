"""PPO with a squashed Gaussian: a boat holds its place against a current.

Actions and their log probabilities are kept from the rollout; the update computes new
ones for the same draws. automl/Mighty#118 (also #117).
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Boat:
    """Offset and speed of boats side by side; the engine pushes both ways."""

    def __init__(self, count, generator):
        self.count, self.generator = count, generator
        self.reset()

    def reset(self):
        draw = torch.rand(self.count, 3, generator=self.generator) * 2 - 1
        self.place, self.speed, self.current = draw.unbind(1)
        return self.look()

    def look(self):
        return torch.stack([self.place, self.speed, self.current], 1)

    def step(self, action):
        push = 1.2 * action[:, 0] + 0.6 * self.current
        self.speed = 0.8 * self.speed + 0.3 * push
        self.place = (self.place + 0.3 * self.speed).clamp(-3, 3)
        return self.look(), -self.place.abs() - 0.02 * action[:, 0].square()


class ActorCritic(nn.Module):
    tanh_squash = True

    def __init__(self, width=48):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))
        self.critic = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))
        self.log_std = nn.Parameter(torch.full((1,), -0.3))

    def distribution(self, seen):
        return torch.distributions.Normal(self.actor(seen), self.log_std.exp())

    def forward(self, seen):
        """-> action, draw before squashing, distribution"""
        normal = self.distribution(seen)
        z = normal.sample()
        return torch.tanh(z), z, normal


def log_prob(normal, z, squashed):
    logs = normal.log_prob(z)
    if squashed:
        logs = logs - torch.log(1 - torch.tanh(z).square() + 1e-6)
    return logs.sum(1)


@torch.no_grad()
def rollout(model, boat, length, squashed):
    seen, rows = boat.reset(), []
    for _ in range(length):
        action, z, normal = model(seen)
        old = log_prob(normal, z, squashed)
        value = model.critic(seen).squeeze(1)
        after, reward = boat.step(action)
        rows.append((seen, z, old, value, reward))
        seen = after
    seen, z, old, value, reward = (torch.stack(part) for part in zip(*rows))
    advantage, later = torch.zeros_like(reward), model.critic(after).squeeze(1)
    running = torch.zeros(reward.size(1))
    for t in reversed(range(length)):
        delta = reward[t] + 0.95 * later - value[t]
        running = delta + 0.95 * 0.9 * running
        advantage[t], later = running, value[t]
    parts = seen, z, old, advantage, advantage + value
    return [part.flatten(0, 1) for part in parts], reward.mean().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=160, help="sixteen a rollout")
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    boat = Boat(32, torch.Generator().manual_seed(1))
    step, ratios = 0, []
    while step < options.steps:
        squashed = model.tanh_squash if options.fixed else False
        data, reward = rollout(model, boat, 32, squashed)
        print(f"step {step} reward {reward:.4f}", flush=True)
        with torch.no_grad():
            first = log_prob(model.distribution(data[0]), data[1], model.tanh_squash)
            ratios.append((first - data[2]).exp().mean().item())
        for _ in range(4):
            for pick in torch.randperm(len(data[0])).chunk(4):
                if step == options.steps:
                    break
                seen, z, old, advantage, returns = (part[pick] for part in data)
                normal = model.distribution(seen)
                ratio = (log_prob(normal, z, model.tanh_squash) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(0.8, 1.2) * advantage
                loss = -torch.minimum(ratio * advantage, clipped).mean()
                off = F.mse_loss(model.critic(seen).squeeze(1), returns)
                optimizer.zero_grad()
                (loss + 0.5 * off - 0.002 * normal.entropy().mean()).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                step += 1
    if options.prove:
        worst = max(abs(ratio - 1) for ratio in ratios)
        print(f"ratio before the first update of a rollout: off by {worst:.4f}")
        print("fault shows:", "yes" if worst > 0.01 else "no", flush=True)


if __name__ == "__main__":
    main()
