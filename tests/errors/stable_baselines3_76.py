"""Soft actor-critic with automatic temperature on a small landing task (own environment, no gym)."""
import argparse
import copy
import random

import numpy as np
import torch as th
from torch import nn
from torch.nn import functional as F


class LandingEnv:
    """Vertical rocket: keep the sink rate small when touching the ground. Ends on touch or flight upwards."""

    max_steps = 40

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def reset(self):
        self.h = self.rng.uniform(0.6, 1.0)
        self.v = self.rng.uniform(-0.2, 0.0)
        self.n = 0
        return self.obs()

    def obs(self):
        return np.array([self.h, self.v * 2, self.n / self.max_steps], dtype=np.float32)

    def step(self, action):
        thrust = float(np.clip(action, -1, 1))
        self.v += 0.04 * thrust - 0.01
        self.h += self.v
        self.n += 1
        reward, done = -0.02 - 0.02 * abs(thrust), False
        if self.h <= 0:
            done, reward = True, reward + 2.0 - 10.0 * abs(self.v)
        elif self.h > 1.5:
            done, reward = True, reward - 1.0
        timeout = self.n >= self.max_steps
        return self.obs(), reward, done, timeout


class ReplayBuffer:
    def __init__(self, size, obs_dim, act_dim):
        self.o, self.no = np.zeros((size, obs_dim), np.float32), np.zeros(
            (size, obs_dim), np.float32
        )
        self.a = np.zeros((size, act_dim), np.float32)
        self.r, self.d = np.zeros((size, 1), np.float32), np.zeros(
            (size, 1), np.float32
        )
        self.pos, self.n, self.size = 0, 0, size

    def add(self, o, no, a, r, d):
        i = self.pos
        self.o[i], self.no[i], self.a[i], self.r[i], self.d[i] = o, no, a, r, d
        self.pos = (i + 1) % self.size
        self.n = min(self.n + 1, self.size)

    def sample(self, batch):
        i = np.random.randint(0, self.n, size=batch)
        return [th.from_numpy(v[i]) for v in (self.o, self.a, self.no, self.r, self.d)]


def net(i, o, h=64):
    return nn.Sequential(
        nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o)
    )


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.body = net(obs_dim, 2 * act_dim)

    def action_log_prob(self, obs):
        mean, log_std = self.body(obs).chunk(2, -1)
        dist = th.distributions.Normal(mean, log_std.clamp(-5, 1).exp())
        u = dist.rsample()
        a = th.tanh(u)
        logp = dist.log_prob(u) - th.log(1 - a.pow(2) + 1e-6)
        return a, logp.sum(-1)


class SAC:
    def __init__(self, env, args):
        self.env, self.args = env, args
        self.gamma, self.tau, self.batch_size = 0.97, 0.02, 64
        self.actor = Actor(3, 1)
        self.q1, self.q2 = net(4, 1), net(4, 1)
        self.q1_target, self.q2_target = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        self.log_ent_coef = th.zeros(1, requires_grad=True)
        self.target_entropy = -1.0
        self.actor_opt = th.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = th.optim.Adam(
            [*self.q1.parameters(), *self.q2.parameters()], lr=1e-3
        )
        self.ent_opt = th.optim.Adam([self.log_ent_coef], lr=1e-3)
        self.buffer = ReplayBuffer(20000, 3, 1)
        self.terminal_gap = []

    def train(self):
        obs, act, next_obs, reward, done = self.buffer.sample(self.batch_size)
        pi, log_prob = self.actor.action_log_prob(obs)
        ent_coef = self.log_ent_coef.exp().detach()
        ent_loss = -(
            self.log_ent_coef * (log_prob + self.target_entropy).detach()
        ).mean()
        self.ent_opt.zero_grad()
        ent_loss.backward()
        self.ent_opt.step()

        with th.no_grad():
            next_a, next_log_prob = self.actor.action_log_prob(next_obs)
            sa = th.cat([next_obs, next_a], 1)
            target_q = th.min(self.q1_target(sa), self.q2_target(sa))
            entropy_term = ent_coef * next_log_prob.reshape(-1, 1)
            if self.args.fixed:
                q_backup = reward + (1 - done) * self.gamma * (target_q - entropy_term)
            else:
                target_q = reward + (1 - done) * self.gamma * target_q
                q_backup = target_q - entropy_term
            if done.any():
                self.terminal_gap.append(
                    ((q_backup - reward).abs() * done).max().item()
                )

        sa = th.cat([obs, act], 1)
        critic_loss = 0.5 * (
            F.mse_loss(self.q1(sa), q_backup) + F.mse_loss(self.q2(sa), q_backup)
        )
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        sa = th.cat([obs, pi], 1)
        actor_loss = (
            ent_coef * log_prob[:, None] - th.min(self.q1(sa), self.q2(sa))
        ).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()

        for src, dst in ((self.q1, self.q1_target), (self.q2, self.q2_target)):
            for p, t in zip(src.parameters(), dst.parameters()):
                t.data.mul_(1 - self.tau).add_(p.data, alpha=self.tau)
        return critic_loss.item(), actor_loss.item(), ent_coef.item()

    def learn(self, updates, learning_starts=400, train_freq=4):
        obs, ep, rets, lens, n, t = self.env.reset(), 0.0, [], [], 0, 0
        while n < updates:
            if t < learning_starts:
                action = np.random.uniform(-1, 1, size=1).astype(np.float32)
            else:
                with th.no_grad():
                    action = self.actor.action_log_prob(th.from_numpy(obs)[None])[0][
                        0
                    ].numpy()
            next_obs, r, done, timeout = self.env.step(action[0])
            self.buffer.add(obs, next_obs, action, r, float(done))
            obs, ep, t = next_obs, ep + r, t + 1
            if done or timeout:
                rets.append(ep), lens.append(self.env.n)
                obs, ep = self.env.reset(), 0.0
            if t >= learning_starts and t % train_freq == 0:
                critic, actor, ent = self.train()
                n += 1
                if n % 50 == 0:
                    print(
                        f"n_updates {n:4d} | ep_rew {np.mean(rets[-15:]):+.3f} | ep_len {np.mean(lens[-15:]):.1f} | "
                        f"critic {critic:.4f} | actor {actor:+.4f} | ent_coef {ent:.3f}"
                    )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=250)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    th.manual_seed(0)
    np.random.seed(0)
    model = SAC(LandingEnv(0), args)
    model.learn(args.steps)
    if args.prove:
        worst = max(model.terminal_gap)
        print(
            f"largest gap between target and reward on transitions that end the episode: {worst:.4f}"
        )
        print("fault shows:", "yes" if worst > 1e-4 else "no")
