"""DDPG keeps the level of a tank; episodes are cut off after twenty moves.

The plant has no end of its own but overflow and emptiness; the cut by the clock only
starts another episode. openai/baselines#436.
"""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F

LIMIT, GAMMA = 20, 0.97


def network(inputs, outputs, *last):
    layers = [nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, outputs), *last)


class Tanks:
    """Many tanks at once: level, inflow and the wanted level."""

    def __init__(self, count):
        self.state = self.fresh(count)
        self.clock = torch.randint(LIMIT, (count,))

    def fresh(self, count):
        level = 0.2 + 0.6 * torch.rand(count, 1)
        wanted = 0.3 + 0.4 * torch.rand(count, 1)
        return torch.cat([level, 0.2 * torch.randn(count, 1), wanted], 1)

    def step(self, action):
        level, inflow, wanted = self.state.split(1, 1)
        inflow = 0.9 * inflow + 0.05 * torch.randn_like(inflow)
        level = level + 0.08 * (inflow + action)
        after = torch.cat([level, inflow, wanted], 1)
        self.clock += 1
        terminated = (level[:, 0] < 0) | (level[:, 0] > 1)
        truncated = (self.clock >= LIMIT) & ~terminated
        reward = 1 - 3 * (level - wanted)[:, 0].abs() - terminated.float()
        done = terminated | truncated
        self.state = torch.where(done[:, None], self.fresh(len(done)), after)
        self.clock[done] = 0
        return after, reward, terminated, truncated


class Replay:
    def __init__(self, capacity=8192):
        self.capacity, self.rows = capacity, []

    def add(self, *columns):
        self.rows.append([column.clone() for column in columns])
        self.rows = self.rows[-self.capacity // len(columns[0]) :]

    def all(self):
        return [torch.cat(column) for column in zip(*self.rows)]

    def sample(self, size):
        columns = self.all()
        chosen = torch.randint(len(columns[0]), (size,))
        return [column[chosen] for column in columns]


class Agent:
    def __init__(self):
        self.actor = network(3, 1, nn.Tanh())
        self.critic = network(4, 1)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.for_actor = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.for_critic = torch.optim.Adam(self.critic.parameters(), lr=2e-3)

    def value(self, critic, state, action):
        return critic(torch.cat([state, action], 1)).squeeze(1)

    def update(self, state, action, reward, after, end, *_):
        with torch.no_grad():
            ahead = self.value(self.target_critic, after, self.target_actor(after))
            target = reward + GAMMA * (1 - end) * ahead
        loss = F.mse_loss(self.value(self.critic, state, action), target)
        self.for_critic.zero_grad()
        loss.backward()
        self.for_critic.step()
        gain = self.value(self.critic, state, self.actor(state)).mean()
        self.for_actor.zero_grad()
        (-gain).backward()
        self.for_actor.step()
        self.follow(self.target_actor, self.actor)
        self.follow(self.target_critic, self.critic)
        return loss.item(), gain.item()

    @torch.no_grad()
    def follow(self, target, source, tau=0.02):
        for slow, fast in zip(target.parameters(), source.parameters()):
            slow.lerp_(fast, tau)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=150)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    world, replay, agent, step = Tanks(32), Replay(), Agent(), 0
    for move in range(30 + options.steps):
        state = world.state.clone()
        with torch.no_grad():
            noise = torch.randn(len(state), 1)
            action = noise if move < 30 else agent.actor(state) + 0.2 * noise
        action = action.clamp(-1, 1)
        after, reward, terminated, truncated = world.step(action)
        end = terminated if options.fixed else terminated | truncated
        replay.add(state, action, reward, after, end.float(), terminated.float())
        if move < 30:
            continue
        loss, gain = agent.update(*replay.sample(128))
        if step % 10 == 0:
            line = "step {} loss {:.4f} value {:.3f} reward {:.3f}"
            print(line.format(step, loss, gain, reward.mean().item()), flush=True)
        step += 1
    if options.prove:
        *_, end, terminated = replay.all()
        wrong = (end != terminated).float().mean().item()
        print(f"moves wrongly kept as the end: {wrong:.4f}", flush=True)
        print("fault shows:", "yes" if wrong > 0 else "no")


if __name__ == "__main__":
    main()
