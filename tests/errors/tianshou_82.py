import argparse
import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

# Offline-ish DQN for a little energy storage problem: buy when the price is low, sell when it is
# high. Episodes are one day long. The buffer keeps one array of observations to save memory, the
# next observation is looked up at sampling time.


class StorageEnv:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.day = 24

    def price(self):
        base = 0.5 + 0.4 * math.sin(2 * math.pi * (self.hour - 6 + self.shift) / 24)
        return base + 0.05 * self.noise

    def obs(self):
        return np.array(
            [
                math.sin(2 * math.pi * self.hour / 24),
                math.cos(2 * math.pi * self.hour / 24),
                self.price(),
                self.level / 4.0,
                self.hour / 24.0,
            ],
            dtype=np.float32,
        )

    def reset(self):
        self.hour, self.level = 0, int(self.rng.integers(0, 3))
        self.shift = self.rng.normal() * 1.5
        self.noise = self.rng.normal()
        return self.obs()

    def step(self, a):  # 0 wait, 1 buy, 2 sell
        rew, p = 0.0, self.price()
        if a == 1 and self.level < 4:
            self.level += 1
            rew = -p
        elif a == 2 and self.level > 0:
            self.level -= 1
            rew = p
        elif a != 0:
            rew = -0.1
        self.hour += 1
        self.noise = 0.7 * self.noise + 0.7 * self.rng.normal()
        return self.obs(), rew, self.hour >= self.day


class Batch(dict):
    __getattr__ = dict.__getitem__


class ReplayBuffer:
    def __init__(self, size, obs_dim, fixed=False):
        self.maxsize, self.fixed = size, fixed
        self.obs = np.zeros((size, obs_dim), np.float32)
        self.act = np.zeros(size, np.int64)
        self.rew = np.zeros(size, np.float32)
        self.done = np.zeros(size, bool)
        self.obs_next = None
        self.ptr = self.len = 0

    def add(self, obs, act, rew, done):
        i = self.ptr
        self.obs[i], self.act[i], self.rew[i], self.done[i] = obs, act, rew, done
        self.ptr = (i + 1) % self.maxsize
        self.len = min(self.len + 1, self.maxsize)

    def get(self, indice, key):
        if key == "obs_next" and self.obs_next is None:
            if self.fixed:
                indice = indice.copy()
            indice += 1 - self.done[indice].astype(np.int64)
            indice[indice >= self.len] = 0
            return self.obs[indice]
        return getattr(self, key)[indice]

    def sample(self, batch_size, rng):
        indice = rng.integers(0, self.len - 1, size=batch_size)
        drawn = indice.copy()
        batch = Batch()
        for key in ("obs", "obs_next", "act", "rew", "done"):
            batch[key] = self.get(indice, key)
        batch["drawn"] = drawn
        return batch


class DQNPolicy:
    def __init__(self, obs_dim, n_act, lr=2e-3, gamma=0.97, target_freq=20):
        self.model = nn.Sequential(
            nn.Linear(obs_dim, 96),
            nn.ReLU(),
            nn.Linear(96, 96),
            nn.ReLU(),
            nn.Linear(96, n_act),
        )
        self.model_old = copy.deepcopy(self.model)
        self.optim = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.gamma, self.freq, self.cnt, self.n_act = gamma, target_freq, 0, n_act

    def act(self, obs, eps, rng):
        if rng.random() < eps:
            return int(rng.integers(self.n_act))
        with torch.no_grad():
            return int(self.model(torch.from_numpy(obs)).argmax())

    def learn(self, batch):
        if self.cnt % self.freq == 0:
            self.model_old.load_state_dict(self.model.state_dict())
        obs, obs_next = torch.from_numpy(batch.obs), torch.from_numpy(batch.obs_next)
        with torch.no_grad():
            best = self.model(obs_next).argmax(1, keepdim=True)
            q_next = self.model_old(obs_next).gather(1, best).squeeze(1)
            target = (
                torch.from_numpy(batch.rew)
                + self.gamma * q_next * (~torch.from_numpy(batch.done)).float()
            )
        q = (
            self.model(obs)
            .gather(1, torch.from_numpy(batch.act).unsqueeze(1))
            .squeeze(1)
        )
        loss = F.smooth_l1_loss(q, target)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        self.cnt += 1
        return loss.item()


def evaluate(policy, episodes=8):
    env, total = StorageEnv(999), 0.0
    rng = np.random.default_rng(0)
    for _ in range(episodes):
        obs, done = env.reset(), False
        while not done:
            obs, rew, done = env.step(policy.act(obs, 0.0, rng))
            total += rew
    return total / episodes


def run(args):
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env = StorageEnv(args.seed)
    buffer = ReplayBuffer(6000, 5, fixed=args.fixed)
    policy = DQNPolicy(5, 3)
    obs = env.reset()

    def collect(n, eps):
        nonlocal obs
        for _ in range(n):
            a = policy.act(obs, eps, rng)
            nxt, rew, done = env.step(a)
            buffer.add(obs, a, rew, done)
            obs = env.reset() if done else nxt

    collect(1500, 1.0)
    wrong = total = 0
    for step in range(args.steps):
        collect(6, max(0.1, 1.0 - step / (0.6 * args.steps)))
        batch = buffer.sample(args.batch_size, rng)
        loss = policy.learn(batch)
        wrong += int((batch.rew != buffer.rew[batch.drawn]).sum())
        total += len(batch.rew)
        if (step + 1) % 50 == 0:
            print(
                f"step {step + 1:4d}  loss {loss:.4f}  test reward {evaluate(policy, 3):.3f}"
            )
    print(f"final test reward {evaluate(policy):.3f}")
    return wrong / max(total, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    share = run(args)
    if args.prove:
        print(f"share of transitions whose reward belongs to another step: {share:.3f}")
        print("fault shows:", "yes" if share > 0.1 else "no")
