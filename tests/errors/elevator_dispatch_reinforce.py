"""Elevator dispatch learnt with REINFORCE and a value baseline."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

FLOORS, ACTIONS = 6, 3


class Elevators:
    """Many shafts side by side; one pending call each; actions are down, stay, up."""

    def __init__(self, n, gen):
        self.n, self.gen = n, gen

    def reset(self):
        self.car = torch.randint(0, FLOORS, (self.n,), generator=self.gen)
        self.call = torch.randint(0, FLOORS, (self.n,), generator=self.gen)
        return self.obs()

    def obs(self):
        return torch.cat(
            [F.one_hot(self.car, FLOORS), F.one_hot(self.call, FLOORS)], 1
        ).float()

    def step(self, action):
        self.car = (self.car + action - 1).clamp(0, FLOORS - 1)
        served = (self.car == self.call) & (action == 1)
        reward = served.float() - 0.1 * (self.car - self.call).abs().float()
        fresh = torch.randint(0, FLOORS, (self.n,), generator=self.gen)
        self.call = torch.where(served, fresh, self.call)
        return self.obs(), reward


class Agent(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2 * FLOORS, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, ACTIONS)
        self.v = nn.Sequential(
            nn.Linear(2 * FLOORS, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def dist(self, obs):
        return Categorical(logits=self.pi(self.trunk(obs)))

    def act(self, obs):
        d = self.dist(obs)
        a = d.sample()
        return a, d.log_prob(a)

    def value(self, obs):
        return self.v(obs).squeeze(-1)


@torch.no_grad()
def rollout(agent, env, horizon):
    obs, acts, rews = [], [], []
    o = env.reset()
    for _ in range(horizon):
        a, _ = agent.act(o)
        obs.append(o)
        acts.append(a)
        o, r = env.step(a)
        rews.append(r)
    return torch.stack(obs), torch.stack(acts), torch.stack(rews)


def to_go(rews, gamma):
    out, acc = torch.zeros_like(rews), torch.zeros(rews.size(1))
    for t in reversed(range(len(rews))):
        acc = rews[t] + gamma * acc
        out[t] = acc
    return out


def log_probs(agent, obs, acts, fixed):
    if fixed:
        return agent.dist(obs).log_prob(acts)
    _, logp = agent.act(obs)
    return logp


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--shafts", type=int, default=48)
    ap.add_argument("--horizon", type=int, default=16)
    ap.add_argument("--gamma", type=float, default=0.9)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(23)
    env = Elevators(args.shafts, torch.Generator().manual_seed(41))
    agent = Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=args.lr)

    gaps = []
    for it in range(args.steps):
        obs, acts, rews = rollout(agent, env, args.horizon)
        ret = to_go(rews, args.gamma)
        val = agent.value(obs)
        adv = ret - val.detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        logp = log_probs(agent, obs, acts, args.fixed)
        entropy = agent.dist(obs).entropy().mean()
        pg, vf = -(logp * adv).mean(), F.mse_loss(val, ret)
        loss = pg + 0.5 * vf - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        if args.prove:
            with torch.no_grad():
                taken = agent.dist(obs).log_prob(acts)
                gaps.append(((logp - taken).abs() > 1e-5).float().mean().item())
        opt.step()
        if it % 15 == 0 or it == args.steps - 1:
            print(
                f"update {it:4d}  loss {loss.item():7.4f}  value loss {vf.item():.4f}  "
                f"entropy {entropy.item():.3f}  reward/step {rews.mean().item():.4f}"
            )

    if args.prove:
        print(
            f"share of log-probabilities that differ from those of the executed actions: "
            f"{sum(gaps) / len(gaps):.4f}"
        )
        print("fault shows:", "yes" if max(gaps) > 0.01 else "no")


if __name__ == "__main__":
    main()
