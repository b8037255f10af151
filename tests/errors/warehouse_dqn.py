"""DQN for a robot in a warehouse grid: pick up the parcel, bring it to the dock, avoid shelves.

The training runs in sessions; every session continues from the checkpoint of the one before.
"""
import argparse
import os
import random
import tempfile
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

N = 5
SHELVES = {(1, 1), (1, 3), (3, 1), (3, 3)}
DOCK = (4, 4)
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


class Warehouse:
    def __init__(self, rng):
        self.rng = rng

    def free_cell(self):
        while True:
            c = (self.rng.randrange(N), self.rng.randrange(N))
            if c not in SHELVES and c != DOCK:
                return c

    def reset(self):
        self.robot, self.parcel, self.loaded, self.t = (
            self.free_cell(),
            self.free_cell(),
            False,
            0,
        )
        return self.obs()

    def obs(self):
        o = np.zeros((3, N, N), dtype=np.float32)
        o[0][self.robot] = 1
        o[1][self.robot if self.loaded else self.parcel] = 1
        o[2][:] = float(self.loaded)
        return o

    def step(self, a):
        self.t += 1
        r, c = self.robot[0] + MOVES[a][0], self.robot[1] + MOVES[a][1]
        reward = -0.04
        if 0 <= r < N and 0 <= c < N and (r, c) not in SHELVES:
            self.robot = (r, c)
        else:
            reward -= 0.06
        if not self.loaded and self.robot == self.parcel:
            self.loaded, reward = True, reward + 0.5
        done = self.loaded and self.robot == DOCK
        if done:
            reward += 1.0
        return self.obs(), reward, done, self.t >= 40


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 24, 3, padding=1)
        self.value = nn.Sequential(
            nn.Linear(24 * N * N, 96), nn.ReLU(), nn.Linear(96, 1)
        )
        self.adv = nn.Sequential(
            nn.Linear(24 * N * N, 96), nn.ReLU(), nn.Linear(96, len(MOVES))
        )

    def forward(self, x):
        h = F.relu(self.conv(x)).flatten(1)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Agent:
    def __init__(self, args):
        self.args = args
        self.rng = random.Random(args.seed)
        torch.manual_seed(args.seed)
        self.q, self.target = QNet(), QNet()
        self.target.load_state_dict(self.q.state_dict())
        self.target.requires_grad_(False)
        self.opt = torch.optim.Adam(self.q.parameters(), lr=1e-3)
        self.memory = deque(maxlen=5000)
        self.env = Warehouse(self.rng)
        self.updates = 0
        self.returns = []

    def act(self, s, eps):
        if self.rng.random() < eps:
            return self.rng.randrange(len(MOVES))
        with torch.no_grad():
            return self.q(torch.from_numpy(s)[None]).argmax().item()

    def learn(self):
        s, a, r, s2, d = zip(*self.rng.sample(self.memory, 64))
        s, s2 = torch.from_numpy(np.stack(s)), torch.from_numpy(np.stack(s2))
        a, r, d = torch.tensor(a), torch.tensor(r), torch.tensor(d, dtype=torch.float32)
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            y = r + 0.95 * (1 - d) * self.target(s2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(self.q(s).gather(1, a[:, None]).squeeze(1), y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 5.0)
        self.opt.step()
        self.updates += 1
        if self.updates % 20 == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.item()

    def save(self, path):
        torch.save(
            {
                "q": self.q.state_dict(),
                "target": self.target.state_dict(),
                "opt": self.opt.state_dict(),
                "memory": list(self.memory),
                "updates": self.updates,
                "returns": self.returns,
                "rng": self.rng.getstate(),
            },
            path,
        )

    def load(self, path):
        ck = torch.load(path, weights_only=False)
        self.q.load_state_dict(ck["q"])
        self.target.load_state_dict(ck["target"])
        if self.args.fixed:
            self.opt.load_state_dict(ck["opt"])
        self.memory.extend(ck["memory"])
        self.updates, self.returns = ck["updates"], ck["returns"]
        self.rng.setstate(ck["rng"])

    def session(self, until):
        while self.updates < until:
            s, total, done, timeout = self.env.reset(), 0.0, False, False
            while not (done or timeout):
                eps = max(0.1, 1 - self.updates / (0.6 * self.args.steps))
                a = self.act(s, eps)
                s2, r, done, timeout = self.env.step(a)
                self.memory.append((s, a, r, s2, done))
                s, total = s2, total + r
                if (
                    len(self.memory) >= 500
                    and len(self.memory) % 4 == 0
                    and self.updates < until
                ):
                    loss = self.learn()
                    if self.updates % 50 == 0:
                        print(
                            f"update {self.updates:4d} loss {loss:.4f} eps {eps:.2f} "
                            f"return (last 20) {np.mean(self.returns[-20:]):.3f}"
                        )
            self.returns.append(total)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--seed", type=int, default=23)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "agent.pt")
        first = Agent(args)
        first.session(args.steps // 2)
        first.save(path)
        print(
            f"session 1 ended after {first.updates} updates, {len(first.returns)} episodes"
        )
        agent = Agent(args)
        agent.load(path)
    agent.session(args.steps)
    print(
        f"session 2 ended after {agent.updates} updates, return (last 20) {np.mean(agent.returns[-20:]):.3f}"
    )

    if args.prove:
        counted = int(next(iter(agent.opt.state.values()))["step"])
        print(f"updates done {agent.updates}, updates known to Adam {counted}")
        print("fault shows:", "yes" if counted < agent.updates else "no")


if __name__ == "__main__":
    main()
