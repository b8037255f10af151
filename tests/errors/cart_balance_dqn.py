# DQN for a small balancing task (own environment, no gym needed)
import argparse
import copy
import math
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple(
    "Transition", ("state", "action", "reward", "next_state", "done")
)


class BalanceEnv:
    """Pole on a cart, Euler integration. The observation is [x, v, angle, angular velocity]."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.obs = np.zeros(4, dtype=np.float32)
        self.t = 0

    def reset(self):
        self.obs[:] = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.obs

    def step(self, action):
        x, v, a, w = self.obs.tolist()
        force = 10.0 if action == 1 else -10.0
        tmp = (force + 0.05 * w * w * math.sin(a)) / 1.1
        acc_a = (9.8 * math.sin(a) - math.cos(a) * tmp) / (
            0.5 * (4 / 3 - 0.1 * math.cos(a) ** 2 / 1.1)
        )
        acc_x = tmp - 0.05 * acc_a * math.cos(a) / 1.1
        self.obs[:] = (x + 0.02 * v, v + 0.02 * acc_x, a + 0.02 * w, w + 0.02 * acc_a)
        self.t += 1
        fell = bool(abs(self.obs[0]) > 2.4 or abs(self.obs[2]) > 0.21)
        return self.obs, 1.0, fell, self.t >= 200


class ReplayMemory:
    def __init__(self, capacity, args):
        self.memory = deque(maxlen=capacity)
        self.args = args

    def push(self, state, action, reward, next_state, done):
        if self.args.fixed:
            state, next_state = state.clone(), next_state.clone()
        self.memory.append(Transition(state, action, reward, next_state, done))

    def sample(self, n):
        rows = Transition(*zip(*random.sample(self.memory, n)))
        return (
            torch.stack(rows.state),
            torch.tensor(rows.action),
            torch.tensor(rows.reward),
            torch.stack(rows.next_state),
            torch.tensor(rows.done, dtype=torch.float32),
        )

    def __len__(self):
        return len(self.memory)


class QNet(nn.Module):
    def __init__(self, n_obs=4, n_actions=2, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_obs, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_actions),
        )

    def forward(self, s):
        return self.net(s)


class Agent:
    def __init__(self, args):
        self.args = args
        self.policy = QNet()
        self.target = copy.deepcopy(self.policy)
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=1e-3)
        self.memory = ReplayMemory(5000, args)
        self.updates = 0

    def act(self, state):
        eps = 0.05 + 0.85 * math.exp(-self.updates / 120)
        if random.random() < eps:
            return random.randrange(2)
        with torch.no_grad():
            return int(self.policy(state).argmax())

    def learn(self, batch_size=128, gamma=0.98, tau=0.02):
        s, a, r, s2, done = self.memory.sample(batch_size)
        q = self.policy(s).gather(1, a.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            goal = r + gamma * (1 - done) * self.target(s2).max(1).values
        loss = F.smooth_l1_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.policy.parameters(), 10.0)
        self.opt.step()
        with torch.no_grad():
            for t, p in zip(self.target.parameters(), self.policy.parameters()):
                t.lerp_(p, tau)
        self.updates += 1
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300, help="gradient updates")
    parser.add_argument(
        "--warmup", type=int, default=600, help="transitions before learning starts"
    )
    parser.add_argument("--update-every", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    random.seed(12)
    torch.manual_seed(12)

    env, agent = BalanceEnv(seed=12), Agent(args)
    lengths, losses, frames = [], [], 0
    state = torch.from_numpy(env.reset())
    while agent.updates < args.steps:
        action = agent.act(state)
        obs, reward, fell, timeout = env.step(action)
        next_state = torch.from_numpy(obs)
        agent.memory.push(state, action, reward, next_state, fell)
        state = next_state
        frames += 1
        if fell or timeout:
            lengths.append(env.t)
            state = torch.from_numpy(env.reset())
        if frames > args.warmup and frames % args.update_every == 0:
            losses.append(agent.learn())
            if agent.updates % 50 == 0:
                recent = lengths[-10:]
                print(
                    f"update {agent.updates:4d} loss {np.mean(losses[-50:]):.3f} "
                    f"mean episode length {sum(recent) / max(1, len(recent)):.1f}"
                )

    print(f"{len(lengths)} episodes, longest {max(lengths, default=0)}")
    if args.prove:
        rows = agent.memory.memory
        distinct = {tuple(t.state.tolist()) for t in rows}
        print("fault shows:", "yes" if len(distinct) < 0.5 * len(rows) else "no")


if __name__ == "__main__":
    main()
