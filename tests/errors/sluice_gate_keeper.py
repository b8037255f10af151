"""Actor-critic that keeps the level of a canal pound by moving a sluice gate.

Sixteen pounds are simulated side by side.  A day has 32 decisions (lower, hold, raise);
inflow wanders, the gate moves in steps and the outflow depends on level and opening.
"""
import argparse
import collections
import json
import os
import tempfile

import torch
import torch.nn as nn
from torch.distributions import Categorical

DAY = 32
TARGET = 2.0


class Pounds:
    """Batch of simulated pounds.  The hour is part of the state, a day always ends."""

    size, actions = 5, 3

    def __init__(self, count, seed):
        self.count = count
        self.g = torch.Generator().manual_seed(seed)

    def noise(self):
        return torch.randn(self.count, generator=self.g)

    def reset(self):
        self.level = TARGET + 0.5 * self.noise()
        self.gate = torch.full((self.count,), 0.5)
        self.inflow = 0.5 + 0.12 * self.noise()
        self.trend = torch.zeros(self.count)
        self.hour = 0
        return self.state()

    def state(self):
        hour = torch.full((self.count,), self.hour / DAY)
        parts = [
            self.level - TARGET,
            self.gate - 0.5,
            self.inflow - 0.5,
            self.trend,
            hour,
        ]
        return torch.stack(parts, dim=1) * torch.tensor([1.0, 2.0, 4.0, 4.0, 1.0])

    def step(self, action):
        self.gate = (self.gate + 0.12 * (action - 1)).clamp(0, 1)
        before = self.level
        outflow = self.gate * self.level.clamp(min=0).sqrt() * 0.7
        self.level = (self.level + 0.6 * (self.inflow - outflow)).clamp(0, 5)
        self.inflow = 0.5 + 0.93 * (self.inflow - 0.5) + 0.05 * self.noise()
        self.trend = self.level - before
        self.hour += 1
        reward = -(self.level - TARGET).abs() - 0.03 * (action != 1)
        return self.state(), 0.2 * reward, self.hour == DAY


def mlp(inputs, outputs, hidden=32):
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden),
        nn.Tanh(),
        nn.Linear(hidden, outputs),
    )


Rollout = collections.namedtuple("Rollout", "states actions rewards")


class Keeper:
    def __init__(self, args):
        self.args = args
        self.actor = mlp(Pounds.size, Pounds.actions)
        self.critic = mlp(Pounds.size, 1)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=args.lr)
        self.critic_optimizer = torch.optim.Adam(
            self.critic.parameters(), lr=2 * args.lr
        )
        self.sampler = torch.Generator().manual_seed(args.seed + 1)

    def act(self, state, greedy=False):
        logits = self.actor(state)
        if greedy:
            return logits.argmax(-1)
        return torch.multinomial(logits.softmax(-1), 1, generator=self.sampler).squeeze(
            1
        )

    @torch.no_grad()
    def collect(self, pounds):
        states, actions, rewards = [], [], []
        state, done = pounds.reset(), False
        while not done:
            action = self.act(state)
            states.append(state)
            actions.append(action)
            state, reward, done = pounds.step(action)
            rewards.append(reward)
        return Rollout(torch.stack(states), torch.stack(actions), torch.stack(rewards))

    def returns(self, rewards):
        out, running = torch.empty_like(rewards), torch.zeros(rewards.shape[1])
        for t in reversed(range(len(rewards))):
            running = rewards[t] + self.args.gamma * running
            out[t] = running
        return out

    def losses(self, rollout):
        returns = self.returns(rollout.rewards)
        values = self.critic(rollout.states).squeeze(-1)
        advantage = returns - values
        if self.args.fixed:
            advantage = advantage.detach()
        policy = Categorical(logits=self.actor(rollout.states))
        policy_loss = -(policy.log_prob(rollout.actions) * advantage).mean()
        value_loss = 0.5 * (returns - values).pow(2).mean()
        return policy_loss, value_loss, policy.entropy().mean()

    def update(self, policy_loss, value_loss, entropy):
        loss = policy_loss + value_loss - self.args.entropy * entropy
        self.actor_optimizer.zero_grad()
        self.critic_optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.actor.parameters(), 0.5)
        nn.utils.clip_grad_norm_(self.critic.parameters(), 0.5)
        self.critic_optimizer.step()
        self.actor_optimizer.step()
        return loss.item()

    @torch.no_grad()
    def trial(self, seed=500):
        pounds = Pounds(64, seed)
        state, done, total = pounds.reset(), False, 0.0
        while not done:
            state, reward, done = pounds.step(self.act(state, greedy=True))
            total += reward.mean().item()
        return total


class CriticPull:
    """Pull of the policy's part of the loss on the critic's weights."""

    def __init__(self, keeper):
        self.keeper = keeper
        self.norms = []
        self.bias = []

    def look(self, policy_loss, rollout):
        weights = list(self.keeper.critic.parameters())
        grads = torch.autograd.grad(
            policy_loss, weights, retain_graph=True, allow_unused=True
        )
        found = [g.norm() for g in grads if g is not None]
        self.norms.append(torch.stack(found).norm().item() if found else 0.0)
        with torch.no_grad():
            values = self.keeper.critic(rollout.states).squeeze(-1)
            self.bias.append(
                (values - self.keeper.returns(rollout.rewards)).mean().item()
            )

    def report(self):
        recent = self.bias[-20:]
        bias = sum(recent) / len(recent)
        print(
            f"largest pull {max(self.norms):.4f}, value minus return lately {bias:.3f}"
        )
        print("fault shows:", "yes" if max(self.norms) > 1e-8 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--pounds", type=int, default=16)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--entropy", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=90)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    pounds = Pounds(args.pounds, args.seed)
    keeper = Keeper(args)
    pull = CriticPull(keeper) if args.prove else None
    window = collections.deque(maxlen=20)
    scores = []
    print(f"before training: day's reward {keeper.trial():.3f}")
    for step in range(1, args.steps + 1):
        rollout = keeper.collect(pounds)
        policy_loss, value_loss, entropy = keeper.losses(rollout)
        if pull:
            pull.look(policy_loss, rollout)
        keeper.update(policy_loss, value_loss, entropy)
        window.append((rollout.rewards.sum(0).mean().item(), value_loss.item()))
        if step % 20 == 0 or step == args.steps:
            reward, value = (sum(c) / len(c) for c in zip(*window))
            scores.append({"step": step, "reward": reward, "trial": keeper.trial()})
            print(
                f"step {step:4d} reward {reward:.3f} value loss {value:.4f} "
                f"entropy {entropy.item():.3f} trial {scores[-1]['trial']:.3f}"
            )
    with tempfile.TemporaryDirectory() as folder:
        torch.save(keeper.actor.state_dict(), os.path.join(folder, "actor.pt"))
        with open(os.path.join(folder, "scores.json"), "w") as handle:
            json.dump(scores, handle)
    if pull:
        pull.report()


if __name__ == "__main__":
    main()
