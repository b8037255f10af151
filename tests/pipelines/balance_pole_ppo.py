# PPO on a vectorised cart-pole written in numpy (clipped objective, GAE, KL stop)
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class VecCartPole:
    """Same physics as the classic-control one, n copies, auto reset, time limit."""

    def __init__(self, n, seed, limit=200):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.s = np.zeros((n, 4))
        self.t = np.zeros(n, dtype=int)

    def _fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, (k, 4))

    def reset(self):
        self.s = self._fresh(self.n)
        self.t[:] = 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, xd, th, thd = self.s.T
        force = np.where(action == 1, 10.0, -10.0)
        cos, sin = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * thd**2 * sin) / 1.1
        thacc = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        xacc = tmp - 0.05 * thacc * cos / 1.1
        self.s = np.stack(
            [x + 0.02 * xd, xd + 0.02 * xacc, th + 0.02 * thd, thd + 0.02 * thacc],
            axis=1,
        )
        self.t += 1
        terminated = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.2095)
        truncated = (self.t >= self.limit) & ~terminated
        final_obs = self.s.astype(np.float32)
        done = terminated | truncated
        lengths = self.t[done].tolist()
        if done.any():
            self.s[done] = self._fresh(done.sum())
            self.t[done] = 0
        return (
            self.s.astype(np.float32),
            np.ones(self.n, np.float32),
            terminated,
            truncated,
            final_obs,
            lengths,
        )


def layer(i, o, gain=np.sqrt(2)):
    m = nn.Linear(i, o)
    nn.init.orthogonal_(m.weight, gain)
    nn.init.zeros_(m.bias)
    return m


class ActorCritic(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.pi = nn.Sequential(
            layer(4, hidden),
            nn.Tanh(),
            layer(hidden, hidden),
            nn.Tanh(),
            layer(hidden, 2, 0.01),
        )
        self.v = nn.Sequential(
            layer(4, hidden),
            nn.Tanh(),
            layer(hidden, hidden),
            nn.Tanh(),
            layer(hidden, 1, 1.0),
        )

    def dist(self, obs):
        return Categorical(logits=self.pi(obs))

    def value(self, obs):
        return self.v(obs).squeeze(-1)


@torch.no_grad()
def collect(env, agent, obs, T, gamma, lam):
    """returns flat tensors for the update; values of truncated states are bootstrapped"""
    n = env.n
    O = torch.zeros(T, n, 4)
    A = torch.zeros(T, n, dtype=torch.long)
    LP, R, V, D = (torch.zeros(T, n) for _ in range(4))
    lengths = []
    for t in range(T):
        o = torch.from_numpy(obs)
        d = agent.dist(o)
        a = d.sample()
        O[t], A[t], LP[t], V[t] = o, a, d.log_prob(a), agent.value(o)
        obs, r, term, trunc, last, ls = env.step(a.numpy())
        r = torch.from_numpy(r)
        if trunc.any():
            k = torch.from_numpy(trunc)
            r[k] += gamma * agent.value(torch.from_numpy(last[trunc]))
        R[t] = r
        D[t] = torch.from_numpy(term | trunc).float()
        lengths += ls
    adv = torch.zeros(T, n)
    next_v, gae = agent.value(torch.from_numpy(obs)), torch.zeros(n)
    for t in reversed(range(T)):
        alive = 1 - D[t]
        delta = R[t] + gamma * next_v * alive - V[t]
        gae = delta + gamma * lam * alive * gae
        adv[t] = gae
        next_v = V[t]
    ret = adv + V
    flat = lambda x: x.reshape(T * n, *x.shape[2:])
    return obs, [flat(x) for x in (O, A, LP, adv, ret)], lengths


@torch.no_grad()
def play(agent, seed, n=10):
    """greedy policy, mean length of the first episode of each copy"""
    env = VecCartPole(n, seed)
    obs = env.reset()
    length, running = np.zeros(n), np.ones(n, bool)
    while running.any():
        a = agent.dist(torch.from_numpy(obs)).probs.argmax(-1).numpy()
        obs, _, term, trunc, _, _ = env.step(a)
        length += running
        running &= ~(term | trunc)
    return length.mean()


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--iterations", "--epochs", type=int, default=14)
    p.add_argument("--envs", type=int, default=8)
    p.add_argument("--rollout", type=int, default=128)
    p.add_argument("--update-epochs", type=int, default=6)
    p.add_argument("--minibatch", type=int, default=256)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--lam", type=float, default=0.95)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--target-kl", type=float, default=0.03)
    p.add_argument("--lr", type=float, default=2.5e-3)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    a = parse_args()

    torch.manual_seed(a.seed)
    np.random.seed(a.seed)
    env = VecCartPole(a.envs, a.seed)
    agent = ActorCritic()
    optimizer = torch.optim.Adam(agent.parameters(), lr=a.lr, eps=1e-5)
    obs = env.reset()
    updates, t0 = 0, time.time()

    for it in range(a.iterations):
        optimizer.param_groups[0]["lr"] = a.lr * (
            1 - it / a.iterations
        )  # linear anneal
        obs, (O, A, LP, ADV, RET), lengths = collect(
            env, agent, obs, a.rollout, a.gamma, a.lam
        )

        stop = False
        for _ in range(a.update_epochs):
            for mb in torch.randperm(len(O)).split(a.minibatch):
                d = agent.dist(O[mb])
                log_ratio = d.log_prob(A[mb]) - LP[mb]
                ratio = log_ratio.exp()
                with torch.no_grad():
                    kl = ((ratio - 1) - log_ratio).mean().item()
                if kl > 1.5 * a.target_kl:
                    stop = True
                    break
                adv = (ADV[mb] - ADV[mb].mean()) / (ADV[mb].std() + 1e-8)
                policy_loss = -torch.min(
                    ratio * adv, ratio.clamp(1 - a.clip, 1 + a.clip) * adv
                ).mean()
                value_loss = 0.5 * (agent.value(O[mb]) - RET[mb]).pow(2).mean()
                loss = policy_loss + 0.5 * value_loss - 0.01 * d.entropy().mean()

                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                updates += 1
            if stop:
                break

        mean_len = np.mean(lengths) if lengths else float("nan")
        print(
            f"it {it:2d} episodes {len(lengths):3d} mean length {mean_len:6.1f} kl {kl:.4f} "
            f"pi {policy_loss.item():+.3f} v {value_loss.item():.2f} updates {updates} ({time.time() - t0:.1f}s)"
        )
        if it % 5 == 4:
            print(f"   greedy policy: {play(agent, 1000 + it):.1f} steps")
    print(f"final greedy {play(agent, 999):.1f}")


if __name__ == "__main__":
    main()
