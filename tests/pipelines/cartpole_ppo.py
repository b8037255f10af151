# PPO on a vectorised cart-pole written in numpy. One file, no dependencies.
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class VecCartPole:
    """Same dynamics as the classic task. Auto-resets; the observation before the reset is returned too."""

    def __init__(self, n, rng, max_steps=200):
        self.n, self.rng, self.max_steps = n, rng, max_steps
        self.state = self._fresh(n)
        self.t = np.zeros(n, dtype=int)

    def _fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, size=(k, 4))

    def obs(self):
        return self.state.astype(np.float32)

    def step(self, action):
        x, x_dot, th, th_dot = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        cos, sin = np.cos(th), np.sin(th)
        temp = (force + 0.05 * th_dot**2 * sin) / 1.1
        th_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        x_acc = temp - 0.05 * th_acc * cos / 1.1
        tau = 0.02
        self.state = np.stack(
            [
                x + tau * x_dot,
                x_dot + tau * x_acc,
                th + tau * th_dot,
                th_dot + tau * th_acc,
            ],
            1,
        )
        self.t += 1
        terminated = (np.abs(self.state[:, 0]) > 2.4) | (
            np.abs(self.state[:, 2]) > 12 * math.pi / 180
        )
        truncated = (self.t >= self.max_steps) & ~terminated
        final_obs = self.obs()
        done = terminated | truncated
        if done.any():
            self.state[done] = self._fresh(done.sum())
            self.t[done] = 0
        return final_obs, np.ones(self.n, dtype=np.float32), terminated, truncated


def layer(n_in, n_out, gain=math.sqrt(2)):
    lin = nn.Linear(n_in, n_out)
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

    def value(self, obs):
        return self.critic(obs).squeeze(-1)

    def policy(self, obs):
        return Categorical(logits=self.actor(obs))


def collect(agent, env, horizon, gamma, lam):
    n = env.n
    obs = torch.zeros(horizon, n, 4)
    nxt = torch.zeros(horizon, n, 4)
    act = torch.zeros(horizon, n, dtype=torch.long)
    logp, rew, term, done = (torch.zeros(horizon, n) for _ in range(4))
    with torch.no_grad():
        for t in range(horizon):
            obs[t] = torch.from_numpy(env.obs())
            dist = agent.policy(obs[t])
            act[t] = dist.sample()
            logp[t] = dist.log_prob(act[t])
            final_obs, r, terminated, truncated = env.step(act[t].numpy())
            nxt[t] = torch.from_numpy(final_obs)
            rew[t] = torch.from_numpy(r)
            term[t] = torch.from_numpy(terminated.astype(np.float32))
            done[t] = torch.from_numpy((terminated | truncated).astype(np.float32))
        values, next_values = agent.value(obs), agent.value(nxt)
        # bootstrap through time limits, not through failures
        delta = rew + gamma * next_values * (1 - term) - values
        adv = torch.zeros_like(delta)
        running = torch.zeros(n)
        for t in reversed(range(horizon)):
            running = delta[t] + gamma * lam * (1 - done[t]) * running
            adv[t] = running
    flat = lambda x: x.flatten(0, 1)
    return flat(obs), flat(act), flat(logp), flat(adv), flat(adv + values)


@torch.no_grad()
def evaluate(agent, episodes=10, seed=1234):
    env = VecCartPole(episodes, np.random.default_rng(seed))
    alive, returns = np.ones(episodes, dtype=bool), np.zeros(episodes)
    while alive.any():
        action = agent.policy(torch.from_numpy(env.obs())).probs.argmax(-1).numpy()
        _, r, terminated, truncated = env.step(action)
        returns += r * alive
        alive &= ~(terminated | truncated)
    return returns.mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--steps", type=int, default=384, help="number of gradient steps"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=2.5e-3)
    args = parser.parse_args()
    gamma, lam, clip, epochs, minibatches, n_envs, horizon = (
        0.99,
        0.95,
        0.2,
        4,
        4,
        8,
        128,
    )
    ent_coef, vf_coef = 0.01, 0.5

    torch.manual_seed(args.seed)
    env = VecCartPole(n_envs, np.random.default_rng(args.seed))
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)
    iterations = max(1, args.steps // (epochs * minibatches))

    for it in range(iterations):
        optimizer.param_groups[0]["lr"] = args.lr * (1 - it / iterations)
        obs, act, old_logp, adv, ret = collect(agent, env, horizon, gamma, lam)
        clipfracs = []
        for _ in range(epochs):
            for mb in torch.randperm(len(obs)).chunk(minibatches):
                dist = agent.policy(obs[mb])
                ratio = (dist.log_prob(act[mb]) - old_logp[mb]).exp()
                a = (adv[mb] - adv[mb].mean()) / (adv[mb].std() + 1e-8)
                pg_loss = -torch.min(
                    ratio * a, ratio.clamp(1 - clip, 1 + clip) * a
                ).mean()
                v_loss = 0.5 * (agent.value(obs[mb]) - ret[mb]).pow(2).mean()
                entropy = dist.entropy().mean()
                loss = pg_loss + vf_coef * v_loss - ent_coef * entropy

                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                clipfracs.append(((ratio - 1).abs() > clip).float().mean().item())
        if it % 4 == 3 or it == iterations - 1:
            print(
                f"iter {it + 1:3d}  policy {pg_loss.item():+.3f}  value {v_loss.item():8.2f}  entropy {entropy.item():.3f}  "
                f"clipped {np.mean(clipfracs):.2f}  eval return {evaluate(agent):.1f}"
            )


if __name__ == "__main__":
    main()
