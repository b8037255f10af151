"""PPO on a small vectorised docking task (1-D point mass, dock softly before time runs out)."""
import argparse

import torch
from torch import nn
from torch.distributions import Categorical


class DockingEnv:
    """Position in [-1, 1]; reach |x| < 0.08 slowly for +1, leave the track for -1."""

    def __init__(self, n, seed, horizon=40):
        self.n, self.horizon = n, horizon
        self.gen = torch.Generator().manual_seed(seed)
        self.x = torch.zeros(n)
        self.v = torch.zeros(n)
        self.t = torch.zeros(n)
        self._reset(torch.ones(n, dtype=torch.bool))

    def _reset(self, which):
        k = int(which.sum())
        if k:
            side = torch.randint(0, 2, (k,), generator=self.gen).float() * 2 - 1
            self.x[which] = side * (0.3 + 0.5 * torch.rand(k, generator=self.gen))
            self.v[which] = 0.04 * torch.randn(k, generator=self.gen)
            self.t[which] = 0

    def obs(self):
        return torch.stack([self.x, self.v * 8, self.t / self.horizon], dim=1)

    def step(self, action):
        self.v = (self.v + 0.015 * (action.float() - 1)).clamp(-0.15, 0.15)
        self.x = self.x + self.v
        self.t = self.t + 1
        docked = (self.x.abs() < 0.08) & (self.v.abs() < 0.06)
        lost = self.x.abs() > 1.0
        late = self.t >= self.horizon
        reward = docked.float() - lost.float() - 0.01
        ended = docked | lost | late
        self._reset(ended)
        return self.obs(), reward, ended, docked


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=3, actions=3, hidden=48):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(obs_dim, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, actions),
        )
        self.vf = nn.Sequential(
            nn.Linear(obs_dim, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 1),
        )
        nn.init.orthogonal_(self.pi[-1].weight, 0.01)

    def forward(self, obs):
        return Categorical(logits=self.pi(obs)), self.vf(obs).squeeze(-1)


class RolloutBuffer:
    def __init__(self):
        self.clear()

    def clear(self):
        self.obs, self.actions, self.logps = [], [], []
        self.values, self.rewards, self.ended = [], [], []

    def push_step(self, obs, action, logp, value, reward, ended):
        for store, item in zip(
            (self.obs, self.actions, self.logps, self.values, self.rewards, self.ended),
            (obs, action, logp, value, reward, ended),
        ):
            store.append(item)

    def compute_gae(self, last_value, last_ended, gamma, lam, fixed):
        steps = len(self.rewards)
        adv = torch.zeros(steps, last_value.shape[0])
        carry = torch.zeros_like(last_value)
        for t in reversed(range(steps)):
            if t == steps - 1:
                nxt, over = last_value, last_ended
            else:
                nxt = self.values[t + 1]
                over = self.ended[t] if fixed else self.ended[t + 1]
            live = (~over).float()
            delta = self.rewards[t] + gamma * nxt * live - self.values[t]
            carry = delta + gamma * lam * live * carry
            adv[t] = carry
        return adv, adv + torch.stack(self.values)

    def flat(self):
        cat = lambda xs: torch.stack(xs).flatten(0, 1)
        return cat(self.obs), cat(self.actions), cat(self.logps)


def episode_advantages(buf, last_value, gamma, lam):
    """Lambda-weighted sums, written out per episode segment, for one environment at a time."""
    rew, val, end = (
        torch.stack(buf.rewards),
        torch.stack(buf.values),
        torch.stack(buf.ended),
    )
    steps, n = rew.shape
    out = torch.zeros(steps, n)
    for e in range(n):
        start = 0
        while start < steps:
            stop = start
            while stop < steps - 1 and not end[stop, e]:
                stop += 1
            tail = 0.0 if end[stop, e] else last_value[e].item()
            vals = val[start : stop + 1, e].tolist() + [tail]
            deltas = [
                rew[start + i, e].item() + gamma * vals[i + 1] - vals[i]
                for i in range(stop - start + 1)
            ]
            acc = 0.0
            for i in reversed(range(len(deltas))):
                acc = deltas[i] + gamma * lam * acc
                out[start + i, e] = acc
            start = stop + 1
    return out


def update(net, opt, buf, adv, ret, args, gen):
    obs, act, old_logp = buf.flat()
    adv, ret = adv.flatten(), ret.flatten()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    total, count = 0.0, 0
    for _ in range(args.ppo_epochs):
        for idx in torch.randperm(obs.shape[0], generator=gen).chunk(args.minibatches):
            dist, value = net(obs[idx])
            ratio = (dist.log_prob(act[idx]) - old_logp[idx]).exp()
            surrogate = torch.min(
                ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx]
            ).mean()
            loss = (
                -surrogate
                + 0.5 * (value - ret[idx]).pow(2).mean()
                - 0.01 * dist.entropy().mean()
            )
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            total, count = total + loss.item(), count + 1
    return total / count


@torch.no_grad()
def success_rate(net, seed, n=64, steps=80):
    env = DockingEnv(n, seed)
    done = docked = 0
    for _ in range(steps):
        dist, _ = net(env.obs())
        _, _, ended, ok = env.step(dist.probs.argmax(-1))
        done += int(ended.sum())
        docked += int(ok.sum())
    return docked / max(done, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=30, help="policy iterations")
    ap.add_argument("--envs", type=int, default=16)
    ap.add_argument("--rollout", type=int, default=64)
    ap.add_argument("--ppo-epochs", type=int, default=4)
    ap.add_argument("--minibatches", type=int, default=4)
    ap.add_argument("--gamma", type=float, default=0.98)
    ap.add_argument("--lam", type=float, default=0.95)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=4)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    env, net, buf = DockingEnv(args.envs, args.seed), ActorCritic(), RolloutBuffer()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    worst = []
    for it in range(args.steps):
        buf.clear()
        obs = env.obs()
        for _ in range(args.rollout):
            with torch.no_grad():
                dist, value = net(obs)
                action = dist.sample()
                logp = dist.log_prob(action)
            nxt, reward, ended, _ = env.step(action)
            buf.push_step(obs, action, logp, value, reward, ended)
            obs = nxt
        with torch.no_grad():
            last_value = net(obs)[1]
        adv, ret = buf.compute_gae(last_value, ended, args.gamma, args.lam, args.fixed)
        if args.prove:
            worst.append(
                (adv - episode_advantages(buf, last_value, args.gamma, args.lam))
                .abs()
                .max()
                .item()
            )
        loss = update(net, opt, buf, adv, ret, args, gen)
        if it % 5 == 0 or it == args.steps - 1:
            print(
                f"iter {it:3d}  loss {loss:.4f}  mean reward {torch.stack(buf.rewards).mean():.4f}"
            )
    print(f"greedy docking rate: {success_rate(net, 999):.3f}")
    if args.prove:
        print(
            f"largest advantage difference: first rollout {worst[0]:.4f}, over the run {max(worst):.4f}"
        )
        print("fault shows: " + ("yes" if worst[0] > 1e-3 else "no"))


if __name__ == "__main__":
    main()
