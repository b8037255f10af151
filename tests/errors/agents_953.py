"""PPO (clip) for a heated-tank controller, many environments in parallel, short rollouts."""
import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


@dataclass
class Config:
    num_envs: int = 16
    rollout: int = 12
    gamma: float = 0.97
    lam: float = 0.95
    clip: float = 0.2
    epochs: int = 3
    minibatches: int = 4
    lr: float = 3e-3
    ent_coef: float = 0.005
    vf_coef: float = 0.5


class HeatedTank:
    """Keep the temperature near a slowly moving set point; three heater levels; never terminates."""

    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)
        self.temp = self.rng.normal(0, 1, n)
        self.setp = self.rng.normal(0, 1, n)
        self.flow = self.rng.uniform(0.2, 1.0, n)

    def obs(self):
        return np.stack(
            [self.temp, self.setp, self.setp - self.temp, self.flow], 1
        ).astype(np.float32)

    def step(self, action):
        power = (action - 1) * 0.5
        self.temp += (
            power - 0.12 * self.flow * self.temp + self.rng.normal(0, 0.05, self.n)
        )
        self.setp += self.rng.normal(0, 0.03, self.n)
        jump = self.rng.random(self.n) < 0.02
        self.setp = np.where(jump, self.rng.normal(0, 1, self.n), self.setp)
        reward = 1.0 - np.abs(self.temp - self.setp) - 0.05 * np.abs(power)
        return self.obs(), reward.astype(np.float32)


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=4, n_actions=3, hidden=48):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(obs_dim, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, n_actions),
        )
        self.v = nn.Sequential(
            nn.Linear(obs_dim, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 1),
        )
        nn.init.orthogonal_(self.pi[-1].weight, 0.01)

    def value(self, obs):
        return self.v(obs).squeeze(-1)


def generalized_advantage_estimation(values, final_value, rewards, gamma, lam):
    """values, rewards: (N, T); final_value: (N,)"""
    next_values = torch.cat([values[:, 1:], final_value[:, None]], dim=1)
    delta = rewards + gamma * next_values - values
    adv = torch.zeros_like(rewards)
    acc = torch.zeros_like(final_value)
    for t in reversed(range(rewards.shape[1])):
        acc = delta[:, t] + gamma * lam * acc
        adv[:, t] = acc
    return adv


class PPO:
    def __init__(self, cfg, fixed, seed):
        self.cfg, self.fixed = cfg, fixed
        self.net = ActorCritic()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr, eps=1e-5)
        self.env = HeatedTank(cfg.num_envs, seed)
        self.last_obs = torch.from_numpy(self.env.obs())
        self.updates = 0

    @torch.no_grad()
    def collect(self):
        obs, act, logp, rew = [], [], [], []
        for _ in range(self.cfg.rollout):
            dist = Categorical(logits=self.net.pi(self.last_obs))
            a = dist.sample()
            nxt, r = self.env.step(a.numpy())
            obs.append(self.last_obs), act.append(a), logp.append(
                dist.log_prob(a)
            ), rew.append(torch.from_numpy(r))
            self.last_obs = torch.from_numpy(nxt)
        stack = lambda xs: torch.stack(xs, dim=1)
        return dict(
            obs=stack(obs),
            act=stack(act),
            logp=stack(logp),
            rew=stack(rew),
            next_obs=self.last_obs,
        )

    @torch.no_grad()
    def compute_advantages(self, batch):
        all_obs = torch.cat([batch["obs"], batch["next_obs"][:, None]], dim=1)
        value_preds = self.net.value(all_obs)
        if self.fixed:
            final_value, value_preds = value_preds[:, -1], value_preds[:, :-1]
        else:
            value_preds = value_preds[:, :-1]
            final_value = value_preds[:, -1]
        adv = generalized_advantage_estimation(
            value_preds, final_value, batch["rew"], self.cfg.gamma, self.cfg.lam
        )
        return adv, adv + value_preds

    def update(self, batch):
        adv, ret = self.compute_advantages(batch)
        flat = lambda x: x.reshape(-1, *x.shape[2:])
        obs, act, old, adv, ret = (
            flat(x) for x in (batch["obs"], batch["act"], batch["logp"], adv, ret)
        )
        stats = []
        for _ in range(self.cfg.epochs):
            for idx in torch.randperm(len(obs)).chunk(self.cfg.minibatches):
                dist = Categorical(logits=self.net.pi(obs[idx]))
                a = adv[idx]
                a = (a - a.mean()) / (a.std() + 1e-8)
                ratio = (dist.log_prob(act[idx]) - old[idx]).exp()
                pg = -torch.min(
                    ratio * a, ratio.clamp(1 - self.cfg.clip, 1 + self.cfg.clip) * a
                ).mean()
                vf = (self.net.value(obs[idx]) - ret[idx]).pow(2).mean()
                loss = (
                    pg
                    + self.cfg.vf_coef * vf
                    - self.cfg.ent_coef * dist.entropy().mean()
                )
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                self.opt.step()
                self.updates += 1
                stats.append((loss.item(), vf.item()))
        return np.mean(stats, axis=0)

    @torch.no_grad()
    def evaluate(self, seed, length=200):
        env, total = HeatedTank(32, seed), 0.0
        for _ in range(length):
            a = self.net.pi(torch.from_numpy(env.obs())).argmax(-1)
            total += env.step(a.numpy())[1].mean()
        return total / length

    @torch.no_grad()
    def advantage_gap(self, batch):
        adv, _ = self.compute_advantages(batch)
        g, lam = self.cfg.gamma, self.cfg.lam
        v = self.net.value(torch.cat([batch["obs"], batch["next_obs"][:, None]], dim=1))
        T = batch["rew"].shape[1]
        direct = torch.zeros_like(adv)
        for t in range(T):
            for k in range(t, T):
                direct[:, t] += (g * lam) ** (k - t) * (
                    batch["rew"][:, k] + g * v[:, k + 1] - v[:, k]
                )
        return (adv - direct).abs().max().item(), adv.std().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--epochs", type=int, default=40, help="number of rollout/update cycles"
    )
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    torch.manual_seed(args.seed)
    algo = PPO(Config(), args.fixed, args.seed)
    print(f"before training: mean reward {algo.evaluate(999):.3f}")
    gaps = []
    for it in range(args.epochs):
        batch = algo.collect()
        if args.prove:
            gaps.append(algo.advantage_gap(batch)[0])
        loss, vf = algo.update(batch)
        if it % 8 == 0 or it == args.epochs - 1:
            print(
                f"iter {it:3d}  updates {algo.updates:4d}  loss {loss:.3f}  value loss {vf:.3f}  "
                f"rollout reward {batch['rew'].mean():.3f}"
            )
    print(f"after training: mean reward {algo.evaluate(999):.3f}")
    if args.prove:
        print(f"largest advantage difference over the run: {max(gaps):.5f}")
        print(f"fault shows: {'yes' if max(gaps) > 1e-3 else 'no'}")


if __name__ == "__main__":
    main()
