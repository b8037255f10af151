# PPO on a vectorised cart-pole written in numpy (no gym needed).
import argparse
from collections import deque

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class VecCartPole:
    """Usual cart-pole equations, n copies at once, automatic reset."""

    def __init__(self, n, seed, max_len=200):
        self.n, self.max_len = n, max_len
        self.rng = np.random.default_rng(seed)
        self.state = np.zeros((n, 4))
        self.t = np.zeros(n, dtype=int)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, (self.n, 4))
        self.t[:] = 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, th, w = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w**2 * s) / 1.1
        acc_th = (9.8 * s - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c**2 / 1.1))
        acc_x = tmp - 0.05 * acc_th * c / 1.1
        self.state = np.stack(
            [x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * w, w + 0.02 * acc_th], axis=1
        )
        self.t += 1
        fell = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.2095)
        cut = (self.t >= self.max_len) & ~fell
        final_obs = self.state.astype(np.float32)
        done = fell | cut
        if done.any():
            self.state[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
            self.t[done] = 0
        reward = np.ones(self.n, dtype=np.float32)
        return self.state.astype(np.float32), reward, fell, cut, final_obs


def layer(i, o, gain=np.sqrt(2)):
    lin = nn.Linear(i, o)
    nn.init.orthogonal_(lin.weight, gain)
    nn.init.zeros_(lin.bias)
    return lin


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(
            layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 2, 0.01)
        )
        self.critic = nn.Sequential(
            layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0)
        )

    def value(self, x):
        return self.critic(x).squeeze(-1)

    def policy(self, x):
        return Categorical(logits=self.actor(x))


@torch.no_grad()
def play(agent, episodes=8):
    """Greedy policy in a separate environment; length of the first episode of every copy."""
    env = VecCartPole(episodes, seed=999)
    obs, alive, length = env.reset(), np.ones(episodes, bool), np.zeros(episodes)
    while alive.any():
        a = agent.actor(torch.from_numpy(obs)).argmax(-1).numpy()
        obs, _, fell, cut, _ = env.step(a)
        length += alive
        alive &= ~(fell | cut)
    return length.mean()


def roll_out(env, agent, obs, T, N, running, returns):
    buf = {
        k: torch.zeros(T, N) for k in ("logp", "value", "reward", "next_value", "done")
    }
    obs_buf, act_buf = torch.zeros(T, N, 4), torch.zeros(T, N, dtype=torch.long)
    with torch.no_grad():
        for t in range(T):
            pi = agent.policy(obs)
            action = pi.sample()
            obs_buf[t], act_buf[t] = obs, action
            buf["logp"][t], buf["value"][t] = pi.log_prob(action), agent.value(obs)
            nxt, reward, fell, cut, final_obs = env.step(action.numpy())
            done = fell | cut
            # a time limit is no real end: bootstrap from the last observation
            boot = agent.value(torch.from_numpy(final_obs))
            buf["next_value"][t] = boot * torch.from_numpy(~fell).float()
            buf["reward"][t] = torch.from_numpy(reward)
            buf["done"][t] = torch.from_numpy(done).float()
            running += reward
            for i in np.flatnonzero(done):
                returns.append(running[i])
                running[i] = 0
            obs = torch.from_numpy(nxt)
    return buf, obs_buf, act_buf, obs


def advantages(buf, T, N, gamma, lam):
    adv, last = torch.zeros(T, N), torch.zeros(N)
    for t in reversed(range(T)):
        delta = buf["reward"][t] + gamma * buf["next_value"][t] - buf["value"][t]
        last = delta + gamma * lam * (1 - buf["done"][t]) * last
        adv[t] = last
    return adv, adv + buf["value"]


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=320, help="optimizer steps")
    ap.add_argument("--envs", type=int, default=8)
    ap.add_argument("--horizon", type=int, default=128)
    ap.add_argument("--seed", type=int, default=2)
    return ap.parse_args()


def main():
    args = parse_args()
    gamma, lam, clip, ent_coef, vf_coef, lr0 = 0.99, 0.95, 0.2, 0.01, 0.5, 2.5e-3
    epochs, minibatches = 4, 4
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    env = VecCartPole(args.envs, args.seed)
    agent = Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=lr0, eps=1e-5)
    iterations = max(1, args.steps // (epochs * minibatches))
    obs = torch.from_numpy(env.reset())
    returns, running = deque(maxlen=30), np.zeros(args.envs)
    T, N = args.horizon, args.envs

    for it in range(iterations):
        opt.param_groups[0]["lr"] = lr0 * (1 - it / iterations)

        buf, obs_buf, act_buf, obs = roll_out(env, agent, obs, T, N, running, returns)
        adv, target = advantages(buf, T, N, gamma, lam)

        # ---- update
        b_obs, b_act = obs_buf.flatten(0, 1), act_buf.flatten()
        b_logp, b_adv, b_target = buf["logp"].flatten(), adv.flatten(), target.flatten()
        clipped = []
        for _ in range(epochs):
            for mb in torch.randperm(T * N).chunk(minibatches):
                pi = agent.policy(b_obs[mb])
                log_ratio = pi.log_prob(b_act[mb]) - b_logp[mb]
                ratio = log_ratio.exp()
                a = b_adv[mb]
                a = (a - a.mean()) / (a.std() + 1e-8)
                pg = -torch.min(a * ratio, a * ratio.clamp(1 - clip, 1 + clip)).mean()
                vf = 0.5 * (agent.value(b_obs[mb]) - b_target[mb]).pow(2).mean()
                entropy = pi.entropy().mean()
                loss = pg + vf_coef * vf - ent_coef * entropy
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
                clipped.append(((ratio - 1).abs() > clip).float().mean().item())
        if it % 4 == 3 or it == iterations - 1:
            mean_ret = np.mean(returns) if returns else float("nan")
            print(
                f"iter {it + 1:3d} return {mean_ret:6.1f} pg {pg.item():+.3f} vf {vf.item():7.2f} "
                f"entropy {entropy.item():.3f} clipped {np.mean(clipped):.2f}"
            )
    print(f"greedy policy holds {play(agent):.0f} steps on average")


if __name__ == "__main__":
    main()
