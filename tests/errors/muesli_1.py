"""Recurrent-free value learning from replayed episodes on a key/door corridor."""
import argparse
import random
from collections import deque

import numpy as np
import torch
from torch import nn


class KeyCorridor:
    """Walk left to the key, then right to the door. Start cell, key cell and door cell vary."""

    N = 9

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.key = self.rng.randrange(0, 3)
        self.door = self.rng.randrange(6, 9)
        self.pos = self.rng.randrange(3, 6)
        self.has_key, self.t = False, 0
        return self.observe()

    def observe(self):
        o = np.zeros(3 * self.N + 1, dtype=np.float32)
        o[self.pos] = 1
        o[self.N + self.key] = 1
        o[2 * self.N + self.door] = 1
        o[-1] = float(self.has_key)
        return o

    def step(self, action):
        self.t += 1
        self.pos = min(self.N - 1, max(0, self.pos + (1 if action == 1 else -1)))
        reward, done = -0.02, False
        if self.pos == self.key and not self.has_key:
            self.has_key = True
            reward += 0.3
        if self.pos == self.door and self.has_key:
            reward, done = 1.0, True
        return self.observe(), reward, done or self.t >= 40, done


class QNet(nn.Module):
    def __init__(self, dim, hidden=64):
        super().__init__()
        self.f = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 2),
        )

    def forward(self, x):
        return self.f(x)


class Agent:
    def __init__(self, args, rng):
        self.args, self.rng = args, rng
        self.env = KeyCorridor(rng)
        dim = 3 * KeyCorridor.N + 1
        self.q, self.target = QNet(dim), QNet(dim)
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=args.lr)
        self.state_replay = deque(maxlen=args.capacity)
        self.action_replay = deque(maxlen=args.capacity)
        self.reward_replay = deque(maxlen=args.capacity)
        self.end_replay = deque(maxlen=args.capacity)
        self.digest = deque(maxlen=args.capacity)
        self.states, self.actions, self.rewards = [], [], []
        self.updates = 0

    def new_episode(self):
        if self.args.fixed:
            self.states, self.actions, self.rewards = [], [], []
        else:
            self.states.clear()
            self.actions.clear()
            self.rewards.clear()

    def act(self, obs, eps):
        if self.rng.random() < eps:
            return self.rng.randrange(2)
        with torch.no_grad():
            return int(self.q(torch.from_numpy(obs)).argmax())

    def play(self, eps):
        self.new_episode()
        obs, over = self.env.reset(), False
        while not over:
            a = self.act(obs, eps)
            nxt, r, over, terminal = self.env.step(a)
            self.states.append(obs)
            self.actions.append(a)
            self.rewards.append(r)
            obs = nxt
        self.states.append(obs)
        self.state_replay.append(self.states)
        self.action_replay.append(self.actions)
        self.reward_replay.append(self.rewards)
        self.end_replay.append(terminal)
        self.digest.append(fingerprint(self.states, self.actions))
        return sum(self.rewards), terminal

    def batch(self):
        picks = [
            self.rng.randrange(len(self.action_replay))
            for _ in range(self.args.batch_episodes)
        ]
        s, a, r, s2, d = [], [], [], [], []
        for i in picks:
            n = len(self.action_replay[i])
            s.extend(self.state_replay[i][:-1])
            s2.extend(self.state_replay[i][1:])
            a.extend(self.action_replay[i])
            r.extend(self.reward_replay[i])
            d.extend([0.0] * (n - 1) + [float(self.end_replay[i])])
        to = lambda x, t=torch.float32: torch.tensor(np.asarray(x), dtype=t)
        return to(s), to(a, torch.long), to(r), to(s2), to(d)

    def learn(self):
        s, a, r, s2, d = self.batch()
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            y = r + self.args.gamma * (1 - d) * self.target(s2).gather(1, best).squeeze(
                1
            )
        q = self.q(s).gather(1, a[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        with torch.no_grad():
            for p, tp in zip(self.q.parameters(), self.target.parameters()):
                tp.lerp_(p, 0.02)
        return loss.item()


def fingerprint(states, actions):
    return hash((np.stack(states).tobytes(), tuple(actions)))


def evaluate(agent, n=60):
    env = KeyCorridor(random.Random(12345))
    wins, ret = 0, 0.0
    for _ in range(n):
        obs, over = env.reset(), False
        while not over:
            obs, r, over, terminal = env.step(agent.act(obs, 0.0))
            ret += r
        wins += terminal
    return wins / n, ret / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=90, help="episodes after warm-up")
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--updates-per-episode", type=int, default=6)
    p.add_argument("--batch-episodes", type=int, default=8)
    p.add_argument("--capacity", type=int, default=300)
    p.add_argument("--gamma", type=float, default=0.95)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=2)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    agent = Agent(args, random.Random(args.seed))
    for _ in range(args.warmup):
        agent.play(1.0)
    recent = deque(maxlen=20)
    for ep in range(args.epochs):
        eps = max(0.1, 1.0 - ep / (0.7 * args.epochs))
        ret, _ = agent.play(eps)
        recent.append(ret)
        loss = np.mean([agent.learn() for _ in range(args.updates_per_episode)])
        if ep % 15 == 0 or ep == args.epochs - 1:
            print(
                f"episode {ep:3d}  eps {eps:.2f}  return(20) {np.mean(recent):+.3f}  loss {loss:.5f}  "
                f"replay {len(agent.action_replay)}"
            )
    wins, ret = evaluate(agent)
    print(
        f"greedy policy: success {wins:.2f}  mean return {ret:+.3f}  after {agent.updates} updates"
    )
    if args.prove:
        now = [
            fingerprint(s, a) for s, a in zip(agent.state_replay, agent.action_replay)
        ]
        same = sum(x == y for x, y in zip(now, agent.digest))
        print(
            f"stored episodes that still read as recorded: {same} of {len(now)}; distinct: {len(set(now))}"
        )
        print("fault shows:", "no" if same == len(now) else "yes")


if __name__ == "__main__":
    main()
