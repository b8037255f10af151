"""Double DQN on a self-written cart-pole. Time limits are truncations, not terminations."""
import argparse
import copy
import math
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class CartPole:
    gravity, m_cart, m_pole, half_length, force, tau = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, seed, limit=200):
        self.rng = np.random.default_rng(seed)
        self.limit = limit

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, xd, th, thd = self.s
        f = self.force if action == 1 else -self.force
        total = self.m_cart + self.m_pole
        pml = self.m_pole * self.half_length
        tmp = (f + pml * thd**2 * math.sin(th)) / total
        tha = (self.gravity * math.sin(th) - math.cos(th) * tmp) / (
            self.half_length * (4 / 3 - self.m_pole * math.cos(th) ** 2 / total)
        )
        xa = tmp - pml * tha * math.cos(th) / total
        self.s = np.array(
            [
                x + self.tau * xd,
                xd + self.tau * xa,
                th + self.tau * thd,
                thd + self.tau * tha,
            ]
        )
        self.t += 1
        terminated = bool(abs(self.s[0]) > 2.4 or abs(self.s[2]) > 12 * math.pi / 180)
        truncated = self.t >= self.limit and not terminated
        return self.s.astype(np.float32), 1.0, terminated, truncated


class ReplayBuffer:
    def __init__(self, capacity, obs_dim):
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.next_obs = np.zeros((capacity, obs_dim), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, np.float32)
        self.capacity, self.size, self.pos = capacity, 0, 0

    def add(self, obs, action, reward, next_obs, terminated):
        i = self.pos
        self.obs[i], self.action[i], self.reward[i] = obs, action, reward
        self.next_obs[i], self.terminated[i] = next_obs, float(terminated)
        self.pos = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n, rng):
        idx = rng.integers(0, self.size, n)
        arrays = (self.obs, self.action, self.reward, self.next_obs, self.terminated)
        return tuple(torch.from_numpy(a[idx]) for a in arrays)


class QNet(nn.Module):
    """Dueling head."""

    def __init__(self, obs_dim=4, n_actions=2, hidden=96):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, n_actions)

    def forward(self, x):
        h = self.body(x)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(dim=1, keepdim=True)


class Agent:
    def __init__(self, args):
        self.args = args
        self.online = QNet()
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=args.lr)
        self.updates = 0

    @torch.no_grad()
    def greedy(self, obs):
        return int(self.online(torch.from_numpy(obs).unsqueeze(0)).argmax(1))

    def act(self, obs, epsilon):
        return random.randrange(2) if random.random() < epsilon else self.greedy(obs)

    def update(self, batch):
        obs, action, reward, next_obs, terminated = batch
        q = self.online(obs).gather(1, action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.online(next_obs).argmax(dim=1, keepdim=True)
            next_q = self.target(next_obs).gather(1, best).squeeze(1)
            goal = reward + self.args.gamma * (1 - terminated) * next_q
        loss = F.smooth_l1_loss(q, goal)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.args.target_every == 0:
            self.target.load_state_dict(self.online.state_dict())
        return loss.item(), q.mean().item()


def evaluate(agent, episodes=3):
    env = CartPole(seed=10_000)
    returns = []
    for _ in range(episodes):
        obs, done, total = env.reset(), False, 0.0
        while not done:
            obs, r, terminated, truncated = env.step(agent.greedy(obs))
            total += r
            done = terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400, help="gradient updates")
    p.add_argument(
        "--train-every", type=int, default=8, help="environment steps between updates"
    )
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--gamma", type=float, default=0.98)
    p.add_argument("--target-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=4)
    args = p.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    sample_rng = np.random.default_rng(args.seed)

    env = CartPole(seed=args.seed)
    agent = Agent(args)
    buffer = ReplayBuffer(10_000, 4)
    warm = 400
    total_env = warm + args.steps * args.train_every
    recent = deque(maxlen=10)
    obs, ep_return, losses = env.reset(), 0.0, []
    print(f"untrained greedy return {evaluate(agent):.1f}")

    for t in range(1, total_env + 1):
        epsilon = max(0.05, 1.0 - 0.95 * max(0, t - warm) / (0.5 * (total_env - warm)))
        action = agent.act(obs, epsilon)
        next_obs, reward, terminated, truncated = env.step(action)
        buffer.add(obs, action, reward, next_obs, terminated)
        obs = next_obs
        ep_return += reward
        if terminated or truncated:
            recent.append(ep_return)
            obs, ep_return = env.reset(), 0.0

        if t > warm and (t - warm) % args.train_every == 0:
            loss, q_mean = agent.update(buffer.sample(args.batch, sample_rng))
            losses.append(loss)
            if agent.updates % 50 == 0:
                print(
                    f"update {agent.updates} env {t} eps {epsilon:.2f} loss {np.mean(losses[-50:]):.4f} "
                    f"q {q_mean:.2f} recent return {np.mean(recent):.1f}"
                )
            if agent.updates % 200 == 0:
                print(f"   greedy return {evaluate(agent):.1f}")
    print(f"final greedy return {evaluate(agent, 5):.1f}")


if __name__ == "__main__":
    main()
