"""TRPO for a sledge that must stop at a flag: the policy has no optimiser at all.

The policy's step is the conjugate-gradient solution of F d = g with Fisher-vector products (two
backward passes through the KL), stretched to the trust region and shortened by a line search. The
critic is trained with Adam on the same rollouts. Sixty-four sledges slide side by side.
"""
import argparse

import torch
import torch.nn as nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn.utils import parameters_to_vector, vector_to_parameters

GAMMA, LAM = 0.97, 0.95


class Slope:
    """State: distance to the flag, speed. Action: push. Episodes end by the clock only."""

    def __init__(self, n, horizon, seed):
        self.n, self.horizon = n, horizon
        self.gen = torch.Generator().manual_seed(seed)

    def reset(self):
        self.x = 4 * torch.rand(self.n, generator=self.gen) - 2
        self.v = 0.5 * torch.randn(self.n, generator=self.gen)
        self.t = 0
        return self.view()

    def view(self):
        clock = torch.full(
            (self.n,), self.t / self.horizon
        )  # the horizon is part of the state
        return torch.stack([self.x, self.v, clock], 1)

    def step(self, push):
        push = push.squeeze(1).clamp(-2, 2)
        self.v = (
            0.95 * self.v + 0.2 * push + 0.02 * torch.randn(self.n, generator=self.gen)
        )
        self.x = self.x + 0.2 * self.v
        self.t += 1
        reward = -(self.x.abs() + 0.1 * self.v.abs() + 0.02 * push.square())
        return self.view(), reward, self.t >= self.horizon


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
        )
        self.log_std = nn.Parameter(torch.full((1,), -0.3))
        with torch.no_grad():
            self.body[-1].weight.mul_(0.1)

    def forward(self, obs):
        return Independent(Normal(self.body(obs), self.log_std.exp()), 1)


def detached(dist):
    return Independent(
        Normal(dist.base_dist.loc.detach(), dist.base_dist.scale.detach()), 1
    )


@torch.no_grad()
def rollout(env, policy, critic):
    obs, rows = env.reset(), []
    done = False
    while not done:
        dist = policy(obs)
        act = dist.sample()
        nxt, rew, done = env.step(act)
        rows.append((obs, act, rew, critic(obs).squeeze(1)))
        obs = nxt
    obs, act, rew, val = (torch.stack(c) for c in zip(*rows))  # time x sledges
    adv, run = torch.zeros_like(rew), torch.zeros(env.n)
    nxt_val = torch.zeros(env.n)  # a real end: the clock is in the state
    for t in reversed(range(len(rew))):
        run = rew[t] + GAMMA * nxt_val - val[t] + GAMMA * LAM * run
        adv[t], nxt_val = run, val[t]
    returns = adv + val
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    return (
        obs.flatten(0, 1),
        act.flatten(0, 1),
        adv.flatten(),
        returns.flatten(),
        rew.sum(0).mean().item(),
    )


def flat_grad(value, params, **kw):
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, params, **kw)])


def conjugate_gradient(product, b, rounds=10, tol=1e-8):
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    rr = r @ r
    for _ in range(rounds):
        ap = product(p)
        a = rr / (p @ ap)
        x += a * p
        r -= a * ap
        new = r @ r
        if new < tol:
            break
        p = r + (new / rr) * p
        rr = new
    return x


def improve(policy, obs, act, adv, radius=0.02, damping=0.05):
    params = list(policy.parameters())
    dist = policy(obs)
    old, old_logp = detached(dist), dist.log_prob(act).detach()

    def surrogate():
        return ((policy(obs).log_prob(act) - old_logp).exp() * adv).mean()

    before = surrogate()
    g = flat_grad(before, params)
    some = slice(None, None, 4)  # curvature from a quarter of the rows
    old_some = Independent(
        Normal(old.base_dist.loc[some], old.base_dist.scale[some]), 1
    )
    kl = kl_divergence(old_some, policy(obs[some])).mean()
    kl_grad = flat_grad(kl, params, create_graph=True)

    def fisher(v):
        return flat_grad(kl_grad @ v, params, retain_graph=True) + damping * v

    d = conjugate_gradient(fisher, g)
    full = d * (2 * radius / (d @ fisher(d))).sqrt()
    here = parameters_to_vector(params).detach().clone()
    with torch.no_grad():
        for shrink in (0.5**k for k in range(10)):
            vector_to_parameters(here + shrink * full, params)
            gain = (surrogate() - before).item()
            moved = kl_divergence(old, policy(obs)).mean().item()
            if gain > 0 and moved <= 1.5 * radius:
                return shrink, moved, gain
        vector_to_parameters(here, params)  # no step is the right step, now and then
    return 0.0, 0.0, 0.0


@torch.no_grad()
def evaluate(policy, seed=999):
    env = Slope(128, 40, seed)
    obs, done, total = env.reset(), False, 0.0
    while not done:
        obs, rew, done = env.step(policy(obs).mean)  # the mean action, no noise
        total += rew.mean().item()
    return total, env.x.abs().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40, help="policy updates")
    args = ap.parse_args()
    torch.manual_seed(17)
    env = Slope(64, 40, seed=18)
    policy = Policy()
    critic = nn.Sequential(
        nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1)
    )
    critic_opt = torch.optim.Adam(critic.parameters(), lr=5e-3)
    start = evaluate(policy)
    print(f"before: return {start[0]:.1f}, {start[1]:.2f} from the flag")
    taken = 0
    for it in range(args.steps):
        obs, act, adv, ret, score = rollout(env, policy, critic)
        shrink, moved, gain = improve(policy, obs, act, adv)
        assert moved <= 0.03
        taken += shrink > 0
        for _ in range(4):  # the critic: a few epochs of small batches
            for rows in torch.randperm(len(obs)).split(640):
                v_loss = (critic(obs[rows]).squeeze(1) - ret[rows]).square().mean()
                critic_opt.zero_grad()
                v_loss.backward()
                critic_opt.step()
        if it % 5 == 4:
            print(
                f"update {it + 1:3d} return {score:7.1f} kl {moved:.4f} step x{shrink:.3f} critic loss {v_loss.item():.2f}"
            )
    end = evaluate(policy)
    assert all(
        p.grad is None for p in policy.parameters()
    )  # only autograd.grad was ever used there
    print(
        f"after: return {end[0]:.1f}, {end[1]:.2f} from the flag; {taken} of {args.steps} updates taken"
    )
    if args.steps >= 40:
        assert taken >= 30 and end[0] > 0.6 * start[0], (start, end)


if __name__ == "__main__":
    main()
