"""DQN on a 6x6 grid with a pit; replay memory and a slowly moving target net."""
import argparse
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn

Transition = namedtuple("Transition", "state action reward next_state done")
SIZE = 6
GOAL, PIT = (5, 5), (3, 3)
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


class Grid:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        while True:
            self.pos = (self.rng.randrange(SIZE), self.rng.randrange(SIZE))
            if self.pos not in (GOAL, PIT):
                break
        self.t = 0
        return self.obs()

    def obs(self):
        x = torch.zeros(2 * SIZE)
        x[self.pos[0]] = 1
        x[SIZE + self.pos[1]] = 1
        return x

    def step(self, a):
        r = min(max(self.pos[0] + MOVES[a][0], 0), SIZE - 1)
        c = min(max(self.pos[1] + MOVES[a][1], 0), SIZE - 1)
        self.pos = (r, c)
        self.t += 1
        if self.pos == GOAL:
            return self.obs(), 1.0, True
        if self.pos == PIT:
            return self.obs(), -1.0, True
        return self.obs(), -0.02, self.t >= 40


def q_network():
    return nn.Sequential(
        nn.Linear(2 * SIZE, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 4),
    )


class Agent:
    def __init__(self, args, rng):
        self.args = args
        self.rng = rng
        self.policy_net = q_network()
        self.target_net = q_network()
        self.target_net.load_state_dict(self.policy_net.state_dict())
        self.memory = deque(maxlen=5000)
        self.opt = torch.optim.Adam(self.policy_net.parameters(), lr=2e-3)
        self.crit = nn.SmoothL1Loss()

    def act(self, s, eps):
        if self.rng.random() < eps:
            return self.rng.randrange(4)
        with torch.no_grad():
            return int(self.policy_net(s[None]).argmax())

    def learn(self):
        batch = Transition(*zip(*self.rng.sample(list(self.memory), self.args.batch)))
        s = torch.stack(batch.state)
        s2 = torch.stack(batch.next_state)
        a = torch.tensor(batch.action)[:, None]
        r = torch.tensor(batch.reward)
        alive = 1.0 - torch.tensor(batch.done, dtype=torch.float32)
        q = self.policy_net(s).gather(1, a).squeeze(1)
        with torch.no_grad():
            goal = r + self.args.gamma * alive * self.target_net(s2).max(1).values
        loss = self.crit(q, goal)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.policy_net.parameters(), 10)
        self.opt.step()
        return loss.item()

    def soft_update(self):
        tau = self.args.tau
        target_state = self.target_net.state_dict()
        policy_state = self.policy_net.state_dict()
        mixed = {}
        for key in policy_state:
            mixed[key] = policy_state[key] * tau + target_state[key] * (1 - tau)
        if self.args.fixed:
            self.target_net.load_state_dict(mixed)


def success_rate(agent, n=40):
    env = Grid(random.Random(77))
    wins = 0
    for _ in range(n):
        s, done = env.reset(), False
        while not done:
            s, r, done = env.step(agent.act(s, 0.0))
        wins += r > 0.5
    return wins / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--gamma", type=float, default=0.95)
    ap.add_argument("--tau", type=float, default=0.05)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    rng = random.Random(0)
    env = Grid(rng)
    agent = Agent(args, rng)
    start = [p.clone() for p in agent.target_net.parameters()]

    s = env.reset()
    updates, ticks = 0, 0
    while updates < args.steps:
        eps = max(0.1, 1.0 - updates / 200)
        a = agent.act(s, eps)
        s2, r, done = env.step(a)
        agent.memory.append(Transition(s, a, r, s2, done))
        s = env.reset() if done else s2
        ticks += 1
        if len(agent.memory) >= 300 and ticks % 4 == 0:
            loss = agent.learn()
            agent.soft_update()
            updates += 1
            if updates % 100 == 0:
                print(
                    f"update {updates} loss {loss:.4f} success {success_rate(agent):.2f}"
                )
    print(f"success rate at the end: {success_rate(agent):.2f}")

    if args.prove:
        moved = max(
            (p - q).abs().max().item()
            for p, q in zip(start, agent.target_net.parameters())
        )
        print("fault shows:", "yes" if moved == 0 else "no")


if __name__ == "__main__":
    main()
