"""A heater keeps a greenhouse at its set point; actor-critic with generalised advantages.

One small network with a policy and a value head plays 48 moves between two updates.
jsboige/CoursIA#15256.
"""

import argparse
import math

import torch
from torch import nn
from torch.distributions import Categorical


class Greenhouse:
    """Three levels of heating against the weather outside."""

    def __init__(self, generator):
        self.generator = generator
        self.reset()

    def reset(self):
        start = torch.rand(2, generator=self.generator)
        self.inside = 12 + 12 * start[0].item()
        self.phase = 6.28 * start[1].item()
        self.clock = 0
        return self.look()

    def look(self):
        outside = 6 + 6 * math.sin(self.phase)
        values = [(self.inside - 20) / 8, outside / 10, math.cos(self.phase)]
        return torch.tensor(values)

    def step(self, level):
        outside = 6 + 6 * math.sin(self.phase)
        self.inside += 0.12 * (outside - self.inside) + 1.6 * level
        self.inside += 0.2 * torch.randn(1, generator=self.generator).item()
        self.phase += 0.2
        self.clock += 1
        cost = abs(self.inside - 20) / 8 + 0.05 * level
        return self.look(), -0.25 * cost, self.clock == 40


class ActorCritic(nn.Module):
    def __init__(self, inputs=3, actions=3, width=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.policy = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)

    def forward(self, state):
        hidden = self.body(state)
        return Categorical(logits=self.policy(hidden)), self.value(hidden).squeeze(-1)


class Rollout:
    """What was seen between two updates."""

    def __init__(self, keep_graph):
        self.keep_graph = keep_graph
        self.log_probs, self.entropies, self.values = [], [], []
        self.rewards, self.ends = [], []

    def add(self, log_prob, entropy, value, reward, end):
        self.log_probs.append(log_prob)
        self.entropies.append(entropy)
        self.values.append(value if self.keep_graph else torch.tensor(value.item()))
        self.rewards.append(reward)
        self.ends.append(end)

    def advantages(self, last_value, gamma=0.95, lam=0.9):
        values = [value.item() for value in self.values] + [last_value]
        result, running = [], 0.0
        for t in reversed(range(len(self.rewards))):
            alive = 1.0 - self.ends[t]
            delta = self.rewards[t] + gamma * alive * values[t + 1] - values[t]
            running = delta + gamma * lam * alive * running
            result.append(running)
        advantages = torch.tensor(result[::-1])
        return advantages, advantages + torch.tensor(values[:-1])


def play(model, world, state, length, keep_graph):
    rollout = Rollout(keep_graph)
    for _ in range(length):
        policy, value = model(state)
        action = policy.sample()
        state, reward, end = world.step(action.item())
        rollout.add(policy.log_prob(action), policy.entropy(), value, reward, end)
        if end:
            state = world.reset()
    return rollout, state


def losses(rollout, last_value):
    advantages, returns = rollout.advantages(last_value)
    values = torch.stack(rollout.values)
    value_loss = nn.functional.mse_loss(values, returns)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    policy_loss = -(torch.stack(rollout.log_probs) * advantages).mean()
    return policy_loss, value_loss, torch.stack(rollout.entropies).mean()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=100)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    world = Greenhouse(torch.Generator().manual_seed(1))
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    before = model.value.weight.detach().clone()
    state, recent = world.reset(), []
    for step in range(options.steps):
        rollout, state = play(model, world, state, 48, keep_graph=options.fixed)
        with torch.no_grad():
            last_value = model(state)[1].item()
        policy_loss, value_loss, entropy = losses(rollout, last_value)
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        recent = (recent + [sum(rollout.rewards) / len(rollout.rewards)])[-10:]
        if step % 5 == 0:
            line = "step {} loss {:.4f} value loss {:.4f} reward {:.3f}"
            reward = sum(recent) / len(recent)
            print(line.format(step, loss.item(), value_loss.item(), reward), flush=True)
    if options.prove:
        moved = (model.value.weight - before).abs().max().item()
        print(f"the value head moved by {moved:.5f} at most", flush=True)
        print("fault shows:", "yes" if moved == 0 else "no")


if __name__ == "__main__":
    main()
