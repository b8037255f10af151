"""PPO on a made-up one-dimensional lander: touch down softly before the fuel or time is gone."""
import argparse

import torch
import torch.nn as nn
from torch.distributions import Categorical


class Hopper:
    """Batch of landers. State: height, velocity, fuel, time. Actions: engine off, low, high."""

    def __init__(self, n, gen, horizon=40):
        self.n, self.gen, self.horizon = n, gen, horizon
        self.s = torch.zeros(n, 4)
        self.reset(torch.ones(n, dtype=torch.bool))

    def reset(self, which):
        m = int(which.sum())
        if m:
            h = 1.0 + 0.5 * torch.rand(m, generator=self.gen)
            v = -0.1 * torch.rand(m, generator=self.gen)
            self.s[which] = torch.stack([h, v, torch.ones(m), torch.zeros(m)], 1)

    def observe(self):
        return self.s.clone()

    def step(self, action):
        h, v, fuel, t = self.s.unbind(1)
        burn = torch.tensor([0.0, 0.03, 0.08])[action]
        burn = torch.minimum(burn, fuel)
        v = v - 0.02 + 0.9 * burn + 0.004 * torch.randn(self.n, generator=self.gen)
        h = h + v
        fuel, t = fuel - burn, t + 1.0 / self.horizon
        landed = h <= 0
        done = landed | (t >= 1 - 1e-6)
        reward = -0.02 * torch.ones(self.n) - 0.2 * burn
        reward = reward + torch.where(landed, 1.0 - 8.0 * v.abs(), torch.zeros_like(v))
        reward = reward - torch.where(done & ~landed, 1.0 + h, torch.zeros_like(h))
        self.s = torch.stack([h, v, fuel, t], 1)
        self.reset(done)
        return self.observe(), reward, done


class ActorCritic(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(4, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 3),
        )
        self.vf = nn.Sequential(
            nn.Linear(4, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 1),
        )
        nn.init.orthogonal_(self.pi[-1].weight, 0.01)

    def dist(self, obs):
        return Categorical(logits=self.pi(obs))

    def evaluate(self, obs, act):
        d = self.dist(obs)
        return d.log_prob(act), d.entropy(), self.vf(obs).squeeze(-1)


@torch.no_grad()
def rollout(env, net, steps, gen, gamma=0.99, lam=0.95):
    obs, keep = env.observe(), []
    for _ in range(steps):
        probs = net.dist(obs).probs
        act = torch.multinomial(probs, 1, generator=gen).squeeze(1)
        logp, _, value = net.evaluate(obs, act)
        nxt, reward, done = env.step(act)
        keep.append((obs, act, logp, value, reward, done.float()))
        obs = nxt
    o, a, lp, v, r, d = (torch.stack(t) for t in zip(*keep))
    last = net.vf(obs).squeeze(-1)
    adv, run = torch.zeros_like(r), torch.zeros(env.n)
    for t in reversed(range(steps)):
        nv = last if t == steps - 1 else v[t + 1]
        delta = r[t] + gamma * nv * (1 - d[t]) - v[t]
        run = delta + gamma * lam * (1 - d[t]) * run
        adv[t] = run
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    batch = dict(
        obs=flat(o), act=flat(a), logp=flat(lp), adv=flat(adv), ret=flat(adv + v)
    )
    return batch, (r.sum() / d.sum().clamp(min=1)).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=320, help="optimizer steps")
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    torch.manual_seed(9)
    gen = torch.Generator().manual_seed(9)
    env, net = Hopper(16, gen), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr, eps=1e-5)
    step, update, gap = 0, 0, 0.0
    while step < args.steps:
        batch, score = rollout(env, net, 48, gen)
        clipped, n, total = 0.0, 0, 0.0
        for epoch in range(4):
            for mb in torch.randperm(len(batch["act"]), generator=gen).chunk(4):
                obs, act = batch["obs"][mb], batch["act"][mb]
                logp, entropy, value = net.evaluate(obs, act)
                with torch.no_grad():
                    old_logp = (
                        batch["logp"][mb] if args.fixed else net.evaluate(obs, act)[0]
                    )
                ratio = (logp - old_logp).exp()
                adv = batch["adv"][mb]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                pg = -torch.min(
                    ratio * adv, ratio.clamp(1 - args.clip, 1 + args.clip) * adv
                ).mean()
                vf = (value - batch["ret"][mb]).pow(2).mean()
                loss = pg + 0.5 * vf - 0.01 * entropy.mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                step, n, total = step + 1, n + 1, total + loss.item()
                clipped += ((ratio - 1).abs() > args.clip).float().mean().item()
                behaviour = (logp.detach() - batch["logp"][mb]).exp()
                gap = max(gap, (behaviour - ratio.detach()).abs().max().item())
        if update % 4 == 0:
            print(
                f"update {update:3d} step {step:4d} loss {total / n:.4f} "
                f"return per landing {score:.3f} clipped {clipped / n:.3f}"
            )
        update += 1
    print(f"last rollout: return per landing {rollout(env, net, 80, gen)[1]:.3f}")
    if args.prove:
        print(
            f"largest distance of the ratio to that against the acting policy: {gap:.4f}"
        )
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
