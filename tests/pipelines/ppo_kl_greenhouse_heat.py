"""PPO keeps sixteen greenhouses warm: continuous heating, running scale of observations,
generalised advantages, several epochs a rollout that end early when the policy has moved enough.

--steps counts steps of the optimizer; a rollout takes at most 16 of them.
"""
import argparse

import torch
import torch.nn as nn
from torch.distributions import Independent, Normal

HOUSES, HORIZON, LIMIT, GAMMA, LAM = 16, 32, 48, 0.9, 0.95


class Greenhouses:
    """Temperatures of many houses at once. Days have no end of their own: after LIMIT steps a
    house is reset, which is a cut in time and no terminal state."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.inside, self.outside, self.wish = (torch.zeros(HOUSES) for _ in range(3))
        self.age = torch.zeros(HOUSES, dtype=torch.long)
        self.reset(torch.ones(HOUSES, dtype=torch.bool))
        # houses of different age, so that they are not all reset in the same step
        self.age = torch.arange(HOUSES) * LIMIT // HOUSES

    def uniform(self, low, high):
        return low + (high - low) * torch.rand(HOUSES, generator=self.gen)

    def reset(self, which):
        self.inside = torch.where(which, self.uniform(5, 25), self.inside)
        self.outside = torch.where(which, self.uniform(-5, 12), self.outside)
        self.wish = torch.where(which, self.uniform(14, 22), self.wish)
        self.age[which] = 0

    def observe(self):
        return torch.stack([self.inside, self.outside, self.wish], 1)

    def step(self, action):
        heat = action.squeeze(1).clamp(-1, 1)  # the box is the environment's business
        self.inside = (
            self.inside + 0.15 * (self.outside - self.inside) + 1.5 * (heat + 1)
        )
        self.inside = self.inside + 0.1 * torch.randn(HOUSES, generator=self.gen)
        cost = ((self.inside - self.wish) / 5).square().clamp(max=4) + 0.05 * (heat + 1)
        self.age += 1
        last, cut = self.observe(), self.age >= LIMIT
        if cut.any():
            self.reset(cut)
        return last, -cost / 10, cut  # returns of about 1


class RunningScale:
    def __init__(self, dim):
        self.mean, self.var, self.count = torch.zeros(dim), torch.ones(dim), 1e-4

    def update(self, x):
        m, v, n = x.mean(0), x.var(0, unbiased=False), len(x)
        total = self.count + n
        delta = m - self.mean
        self.var = (
            self.var * self.count + v * n + delta**2 * self.count * n / total
        ) / total
        self.mean, self.count = self.mean + delta * n / total, total

    def __call__(self, x):
        return ((x - self.mean) / (self.var + 1e-8).sqrt()).clamp(-10, 10)


def layer(i, o, gain=2**0.5):
    lin = nn.Linear(i, o)
    nn.init.orthogonal_(lin.weight, gain)
    nn.init.zeros_(lin.bias)
    return lin


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(
            layer(3, 32), nn.Tanh(), layer(32, 32), nn.Tanh(), layer(32, 1, 0.01)
        )
        self.v = nn.Sequential(
            layer(3, 32), nn.Tanh(), layer(32, 32), nn.Tanh(), layer(32, 1, 1.0)
        )
        self.log_std = nn.Parameter(torch.full((1,), -0.5))  # the same in every state

    def policy(self, obs):
        mean = self.pi(obs)
        return Independent(Normal(mean, self.log_std.exp().expand_as(mean)), 1)

    def value(self, obs):
        return self.v(obs).squeeze(-1)


@torch.no_grad()
def rollout(agent, env, scale):
    obs, act, logp, val, rew, cut = ([] for _ in range(6))
    for _ in range(HORIZON):
        raw = env.observe()
        scale.update(raw)
        o = scale(raw)
        dist = agent.policy(o)
        a = dist.sample()
        last, r, c = env.step(a)
        # cut by the clock: what would have followed still counts
        r_total = r + GAMMA * agent.value(scale(last)) * c
        for store, x in zip(
            (obs, act, logp, val, rew, cut),
            (o, a, dist.log_prob(a), agent.value(o), r_total, c),
        ):
            store.append(x)
    after = agent.value(scale(env.observe()))
    adv, running = [None] * HORIZON, torch.zeros(HOUSES)
    for t in reversed(range(HORIZON)):
        goes_on = (~cut[t]).float()
        delta = rew[t] + GAMMA * goes_on * after - val[t]
        running = delta + GAMMA * LAM * goes_on * running
        adv[t], after = running, val[t]
    obs, act, logp, val, adv = (torch.cat(x) for x in (obs, act, logp, val, adv))
    return obs, act, logp, adv, adv + val


@torch.no_grad()
def mean_cost(agent, scale):
    """The mean action, in greenhouses of the evaluation's own; the scale stays as it is."""
    env, cost = Greenhouses(seed=99), 0.0
    for _ in range(LIMIT):
        cost -= 10 * env.step(agent.pi(scale(env.observe())))[1].mean().item()
    return cost / LIMIT


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--target-kl", type=float, default=0.01)
    args = p.parse_args()
    torch.manual_seed(21)
    torch.set_num_threads(1)
    env, agent, scale = Greenhouses(seed=3), Agent(), RunningScale(3)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    done, round_ = 0, 0
    while done < args.steps:
        data = rollout(agent, env, scale)
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - done / args.steps)
        losses, kl, before = [], 0.0, done
        for epoch in range(4):
            for pick in torch.randperm(HOUSES * HORIZON).chunk(4):
                obs, act, old, adv, ret = (x[pick] for x in data)
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                dist = agent.policy(obs)
                log_ratio = dist.log_prob(act) - old
                ratio = log_ratio.exp()
                with torch.no_grad():
                    kl = (ratio - 1 - log_ratio).mean().item()
                if kl > 1.5 * args.target_kl or done == args.steps:
                    break
                surrogate = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
                value_loss = 0.5 * (agent.value(obs) - ret).square().mean()
                loss = value_loss - surrogate - 0.001 * dist.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                done += 1
                losses.append(value_loss.item())
            else:
                continue
            break
        round_ += 1
        print(
            f"rollout {round_:2d} steps {done - before:2d} value loss {sum(losses) / len(losses):.4f} "
            f"kl {kl:.4f} std {agent.log_std.exp().item():.3f} cost {mean_cost(agent, scale):.4f}"
        )


if __name__ == "__main__":
    main()
