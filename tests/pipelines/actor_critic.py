"""Advantage actor-critic: docks a cart at the middle of a rail. Sixteen carts run at
once, the actor and the critic are two nets with an optimizer each, the advantage is
the generalised one.

    python actor_critic.py --steps 120
"""

import argparse

import torch
from torch import nn
from torch.distributions import Normal


class Rail:
    """Carts at position and speed; the action is a push. Batched, no resets."""

    horizon = 25

    def __init__(self, carts):
        self.carts = carts

    def reset(self):
        self.position = torch.empty(self.carts).uniform_(-1.5, 1.5)
        self.speed = torch.empty(self.carts).uniform_(-0.5, 0.5)
        return self.observe()

    def observe(self):
        return torch.stack([self.position, self.speed], dim=1)

    def step(self, push):
        push = push.clamp(-2, 2)
        self.speed = 0.95 * self.speed + 0.2 * push
        self.position = self.position + 0.2 * self.speed
        cost = self.position**2 + 0.1 * self.speed**2 + 0.02 * push**2
        return self.observe(), -0.1 * cost


class Actor(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        last = nn.Linear(hidden, 1, bias=False)
        nn.init.normal_(last.weight, std=0.01)
        self.net = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), last)
        self.log_std = nn.Parameter(torch.tensor(-0.3))

    def forward(self, obs):
        return Normal(self.net(obs).squeeze(-1), self.log_std.exp())


class Critic(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.inner = nn.Linear(4, hidden)
        self.outer = nn.Linear(hidden, 1)

    def forward(self, obs):
        features = torch.cat([obs, obs**2], dim=-1)
        return self.outer(torch.relu(self.inner(features))).squeeze(-1)


@torch.no_grad()
def rollout(env, actor):
    observations, actions, rewards = [], [], []
    obs = env.reset()
    for _ in range(env.horizon):
        action = actor(obs).sample()
        observations.append(obs)
        actions.append(action)
        obs, reward = env.step(action)
        rewards.append(reward)
    observations.append(obs)
    return torch.stack(observations), torch.stack(actions), torch.stack(rewards)


def advantages(rewards, values, gamma=0.95, lam=0.9):
    result = torch.zeros_like(rewards)
    running = torch.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * values[t + 1] - values[t]
        running = delta + gamma * lam * running
        result[t] = running
    return result


def train(steps, carts, seed):
    torch.manual_seed(seed)
    env = Rail(carts)
    actor, critic = Actor(), Critic()
    actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-2)
    critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-2)
    for i in range(steps):
        obs, acts, rewards = rollout(env, actor)
        with torch.no_grad():
            values = critic(obs)
            adv = advantages(rewards, values)
            returns = adv + values[:-1]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)

        policy = actor(obs[:-1])
        actor_loss = -(policy.log_prob(acts) * adv).mean()
        actor_loss = actor_loss - 1e-3 * policy.entropy().mean()
        actor_opt.zero_grad()
        actor_loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
        actor_opt.step()

        for _ in range(2):
            critic_loss = nn.functional.mse_loss(critic(obs[:-1]), returns)
            critic_opt.zero_grad()
            critic_loss.backward()
            critic_opt.step()

        if i % 12 == 0 or i == steps - 1:
            print(
                f"update {i:3d} critic loss {critic_loss.item():.6f} actor loss "
                f"{actor_loss.item():+.6f} return {rewards.sum(0).mean():.4f}",
                flush=True,
            )
    return actor


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--carts", type=int, default=16)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()
    torch.set_num_threads(1)
    actor = train(args.steps, args.carts, args.seed)
    env = Rail(64)
    obs = env.reset()
    with torch.no_grad():
        for _ in range(env.horizon):
            obs, _ = env.step(actor(obs).mean)
    print(f"mean distance from the dock at the end {obs[:, 0].abs().mean():.4f}")


if __name__ == "__main__":
    main()
