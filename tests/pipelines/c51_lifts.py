"""Where a lift is to wait: categorical DQN with prioritized replay and noisy layers.

Three-step returns; the loss of a sample is weighted (importance, annealed) and becomes
its priority; noise is drawn anew before each forward that trains, and is off in the
evaluation; target network by copies in steps. No exploration but the noise. The sum tree
is numpy; the cross-entropy has a floor above zero by nature.
"""
import argparse
import collections

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FLOORS, ATOMS, LOW, HIGH = 6, 21, -6.0, 2.0


class Lift:
    """Calls come mostly from floors that depend on the hour."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.floor, self.hour, self.left = int(self.rng.integers(FLOORS)), 0.0, 20
        self.hour = self.rng.uniform(0, 1)
        return self.look()

    def look(self):
        seen = np.zeros(FLOORS + 2, dtype=np.float32)
        seen[self.floor] = 1
        seen[-2:] = np.sin(6.28 * self.hour), np.cos(6.28 * self.hour)
        return seen

    def step(self, action):
        self.floor = int(np.clip(self.floor + action - 1, 0, FLOORS - 1))
        busy = (np.sin(6.28 * self.hour) + 1) / 2 * (FLOORS - 1)
        call = np.clip(round(self.rng.normal(busy, 0.6)), 0, FLOORS - 1)
        reward = 0.3 - 0.4 * abs(call - self.floor)
        self.hour, self.left = (self.hour + 0.02) % 1, self.left - 1
        return self.look(), reward, self.left == 0


class NoisyLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        bound = inputs**-0.5
        self.mu = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.sigma = nn.Parameter(torch.full((outputs, inputs), 0.4 * bound))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.register_buffer("noise", torch.zeros(outputs, inputs), persistent=False)

    def draw(self):
        a, b = (torch.randn(n) for n in self.mu.shape)
        self.noise = torch.outer(a.sign() * a.abs().sqrt(), b.sign() * b.abs().sqrt())

    def forward(self, x):
        w = self.mu + self.sigma * self.noise if self.training else self.mu
        return F.linear(x, w, self.bias)


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.first = nn.Linear(FLOORS + 2, width)
        self.second, self.last = NoisyLinear(width, width), NoisyLinear(
            width, 3 * ATOMS
        )
        self.register_buffer("support", torch.linspace(LOW, HIGH, ATOMS))

    def draw(self):
        self.second.draw()
        self.last.draw()

    def forward(self, seen):
        h = F.relu(self.second(F.relu(self.first(seen))))
        return self.last(h).view(-1, 3, ATOMS).log_softmax(-1)

    def best(self, seen):
        return (self(seen).exp() * self.support).sum(-1).argmax(1)


class Replay:
    def __init__(self, size, rng):
        self.tree, self.rows = np.zeros(2 * size), [None] * size
        self.size, self.next, self.count, self.rng = size, 0, 0, rng
        self.most = 1.0

    def set(self, place, priority):
        self.most = max(self.most, priority)
        place += self.size
        self.tree[place] = (priority + 1e-3) ** 0.6
        while place > 1:
            place //= 2
            self.tree[place] = self.tree[2 * place] + self.tree[2 * place + 1]

    def add(self, row):
        self.rows[self.next] = row
        self.set(self.next, self.most)
        self.next, self.count = (self.next + 1) % self.size, self.count + 1

    def sample(self, n, beta):
        places = []
        for k in range(n):
            mass = (k + self.rng.uniform()) / n * self.tree[1]
            place = 1
            while place < self.size:
                place *= 2
                if mass >= self.tree[place]:
                    mass -= self.tree[place]
                    place += 1
            places.append(place - self.size)
        share = np.array([self.tree[p + self.size] for p in places]) / self.tree[1]
        weight = (min(self.count, self.size) * share) ** -beta
        columns = zip(*(self.rows[p] for p in places))
        rows = [torch.as_tensor(np.array(c), dtype=torch.float32) for c in columns]
        return places, torch.tensor(weight / weight.max(), dtype=torch.float32), rows


@torch.no_grad()
def project(net, target, reward, after, discount):
    """-> the target's distribution of the online net's action, on the same atoms"""
    action = net.best(after)
    chance = target(after)[torch.arange(len(after)), action].exp()
    atoms = (reward[:, None] + discount[:, None] * net.support).clamp(LOW, HIGH)
    place = (atoms - LOW) / (HIGH - LOW) * (ATOMS - 1)
    near = (1 - (place[:, None, :] - torch.arange(ATOMS)[:, None]).abs()).clamp(min=0)
    return (near * chance[:, None, :]).sum(2)


@torch.no_grad()
def evaluate(net):
    net.eval()
    lifts = [Lift(np.random.default_rng(500 + k)) for k in range(30)]
    seen, total = np.stack([l.reset() for l in lifts]), 0.0
    for _ in range(20):
        actions = net.best(torch.tensor(seen)).tolist()
        seen, reward, _ = zip(*(l.step(a) for l, a in zip(lifts, actions)))
        seen, total = np.stack(seen), total + np.mean(reward)
    net.train()
    return total / 20


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=350)
    args = p.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    rng = np.random.default_rng(3)
    net, target = Net(), Net()
    target.load_state_dict(net.state_dict())
    target.eval()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, eps=1.5e-4)
    replay, lift, recent = Replay(1024, rng), Lift(rng), collections.deque()
    seen, discount, step = lift.reset(), 0.8, 0
    print(f"untrained: reward {evaluate(net):.4f}")
    while step < args.steps:
        for _ in range(4):
            net.draw()
            with torch.no_grad():
                action = net.best(torch.tensor(seen)[None]).item()
            after, reward, over = lift.step(action)
            recent.append((seen, action, reward))
            while recent and (len(recent) == 3 or over):
                n = len(recent)
                gain = sum(discount**k * r for k, (_, _, r) in enumerate(recent))
                # the end is that of time, so that the future counts there, too
                replay.add((*recent[0][:2], gain, after, discount**n))
                recent.popleft()
            seen = lift.reset() if over else after
        if replay.count < 200:
            continue
        beta = 0.4 + 0.6 * step / args.steps
        places, weight, (s, a, r, s2, gamma) = replay.sample(32, beta)
        net.draw()
        wanted = project(net, target, r, s2, gamma)
        net.draw()
        chosen = net(s)[torch.arange(len(s)), a.long()]
        each = -(wanted * chosen).sum(1)
        loss = (weight * each).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        for place, priority in zip(places, each.tolist()):
            replay.set(place, priority)
        step += 1
        if step % 25 == 0:
            target.load_state_dict(net.state_dict())
        if step % 70 == 0 or step == args.steps:
            print(f"step {step:3d} loss {loss.item():.4f} reward {evaluate(net):.4f}")


if __name__ == "__main__":
    main()
