"""Advantage actor-critic on a home-made vectorised cart pole."""
import argparse
from collections import deque

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class VecCartPole:
    """Same physics as the classic control task, N copies at once."""

    def __init__(self, n, seed, limit=200):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.state = self._fresh(n)
        self.t = np.zeros(n, dtype=int)

    def _fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, (k, 4))

    def reset(self):
        self.state = self._fresh(self.n)
        self.t[:] = 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, th, w = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        cos, sin = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w**2 * sin) / 1.1
        thacc = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        xacc = tmp - 0.05 * thacc * cos / 1.1
        self.state = np.stack(
            [x + 0.02 * v, v + 0.02 * xacc, th + 0.02 * w, w + 0.02 * thacc], 1
        )
        self.t += 1
        fell = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.2095)
        timeout = (self.t >= self.limit) & ~fell
        last_obs = self.state.astype(np.float32)  # before the automatic reset
        done = fell | timeout
        if done.any():
            self.state[done] = self._fresh(done.sum())
            self.t[done] = 0
        return (
            self.state.astype(np.float32),
            np.ones(self.n, np.float32),
            fell,
            timeout,
            last_obs,
        )


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(4, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 2),
        )
        self.v = nn.Sequential(
            nn.Linear(4, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 1),
        )
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, 2**0.5)
                nn.init.zeros_(m.bias)
        nn.init.orthogonal_(self.pi[-1].weight, 0.01)
        nn.init.orthogonal_(self.v[-1].weight, 1.0)

    def policy(self, obs):
        return Categorical(logits=self.pi(obs))

    def value(self, obs):
        return self.v(obs).squeeze(-1)


@torch.no_grad()
def play_greedy(net, episodes, seed):
    env = VecCartPole(episodes, seed)
    obs = env.reset()
    alive = np.ones(episodes, bool)
    total = np.zeros(episodes)
    while alive.any():
        a = net.policy(torch.from_numpy(obs)).probs.argmax(-1).numpy()
        obs, r, fell, timeout, _ = env.step(a)
        total += r * alive
        alive &= ~(fell | timeout)
    return total.mean()


def gae(rewards, values, next_values, fell, done, gamma, lam):
    """next_values[t] is the value of the state reached at t (before a reset)."""
    adv = torch.zeros_like(rewards)
    running = torch.zeros(rewards.size(1))
    for t in reversed(range(rewards.size(0))):
        delta = rewards[t] + gamma * next_values[t] * (1 - fell[t]) - values[t]
        running = delta + gamma * lam * (1 - done[t]) * running
        adv[t] = running
    return adv, adv + values


def collect(env, net, obs, horizon, ep_return, recent):
    roll = {k: [] for k in ("obs", "act", "rew", "last", "fell", "done")}
    for _ in range(horizon):
        o = torch.from_numpy(obs)
        with torch.no_grad():
            a = net.policy(o).sample()
        obs, r, fell, timeout, last = env.step(a.numpy())
        ep_return += r
        done = fell | timeout
        recent.extend(ep_return[done].tolist())
        ep_return[done] = 0
        for k, val in zip(
            roll,
            (o, a, r * 0.1, last, fell.astype(np.float32), done.astype(np.float32)),
        ):
            roll[k].append(torch.as_tensor(val))
    return {k: torch.stack(val) for k, val in roll.items()}, obs


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=250, help="optimizer updates")
    p.add_argument("--envs", type=int, default=16)
    p.add_argument("--horizon", type=int, default=16)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--lam", type=float, default=0.95)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--ent-coef", type=float, default=0.01)
    p.add_argument("--vf-coef", type=float, default=0.5)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)

    env = VecCartPole(args.envs, args.seed)
    net = ActorCritic()
    opt = torch.optim.RMSprop(net.parameters(), lr=args.lr, alpha=0.99, eps=1e-5)
    sched = torch.optim.lr_scheduler.LinearLR(
        opt, start_factor=1.0, end_factor=0.1, total_iters=args.steps
    )

    obs = env.reset()
    ep_return = np.zeros(args.envs)
    recent = deque(maxlen=50)
    for update in range(1, args.steps + 1):
        b, obs = collect(env, net, obs, args.horizon, ep_return, recent)

        values = net.value(b["obs"])
        with torch.no_grad():
            next_values = net.value(b["last"])
            adv, returns = gae(
                b["rew"],
                values,
                next_values,
                b["fell"],
                b["done"],
                args.gamma,
                args.lam,
            )
        dist = net.policy(b["obs"])
        norm_adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg_loss = -(dist.log_prob(b["act"]) * norm_adv).mean()
        v_loss = (returns - values).pow(2).mean()
        entropy = dist.entropy().mean()
        loss = pg_loss + args.vf_coef * v_loss - args.ent_coef * entropy

        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        sched.step()
        if update % 50 == 0 or update == args.steps:
            mean_ret = np.mean(recent) if recent else float("nan")
            print(
                f"update {update} return {mean_ret:.1f} v_loss {v_loss.item():.3f} entropy {entropy.item():.3f} "
                f"greedy {play_greedy(net, 10, 1000 + update):.1f}"
            )


if __name__ == "__main__":
    main()
