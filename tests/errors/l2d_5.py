"""Learning to dispatch: PPO policy that orders the jobs of a small flow shop (2 machines)."""
import argparse
from copy import deepcopy

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--n_j", type=int, default=8)
    p.add_argument("--num_envs", type=int, default=4)
    p.add_argument("--k_epochs", type=int, default=2)
    p.add_argument("--gamma", type=float, default=1.0)
    p.add_argument("--eps_clip", type=float, default=0.2)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


class FlowShop:
    def __init__(self, n_j, rng):
        self.n_j = n_j
        self.rng = rng

    def reset(self):
        self.dur = self.rng.uniform(1, 99, size=(self.n_j, 2)).astype(np.float32)
        self.done = np.zeros(self.n_j, dtype=bool)
        self.t = np.zeros(2, dtype=np.float32)
        return self.obs()

    def obs(self):
        lag = np.full((self.n_j, 1), (self.t[1] - self.t[0]) / 100, dtype=np.float32)
        left = np.full((self.n_j, 1), (~self.done).mean(), dtype=np.float32)
        fea = np.concatenate([self.dur / 100, lag, left, self.done[:, None]], 1)
        return fea.astype(np.float32), self.done.copy()

    def step(self, a):
        before = self.t[1]
        self.t[0] += self.dur[a, 0]
        self.t[1] = max(self.t[0], self.t[1]) + self.dur[a, 1]
        self.done[a] = True
        reward = -(self.t[1] - before) / 100
        return self.obs(), float(reward), bool(self.done.all())


class ActorCritic(nn.Module):
    def __init__(self, fea=5, hid=64):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(fea, hid), nn.Tanh(), nn.Linear(hid, hid), nn.Tanh()
        )
        self.actor = nn.Sequential(
            nn.Linear(2 * hid, hid), nn.Tanh(), nn.Linear(hid, 1)
        )
        self.critic = nn.Sequential(nn.Linear(hid, hid), nn.Tanh(), nn.Linear(hid, 1))

    def forward(self, fea, mask):
        h = self.enc(fea)
        pooled = h.mean(1)
        cand = torch.cat([h, pooled[:, None].expand_as(h)], -1)
        score = self.actor(cand).squeeze(-1) * 5
        score = score.masked_fill(mask, float("-inf"))
        return torch.softmax(score, 1), self.critic(pooled)


class Memory:
    def __init__(self):
        self.fea, self.mask, self.a, self.r, self.logprobs = [], [], [], [], []


class PPO:
    def __init__(self, args):
        self.args = args
        self.policy = ActorCritic()
        self.policy_old = deepcopy(self.policy)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=args.lr)
        self.MSE = nn.MSELoss()
        self.terms = []

    def update(self, memories):
        a = self.args
        returns_all = []
        for m in memories:
            R, out = 0.0, []
            for r in reversed(m.r):
                R = r + a.gamma * R
                out.insert(0, R)
            out = torch.tensor(out, dtype=torch.float)
            returns_all.append((out - out.mean()) / (out.std() + 1e-5))
        for _ in range(a.k_epochs):
            loss_sum = 0
            for i, m in enumerate(memories):
                pi, vals = self.policy(torch.stack(m.fea), torch.stack(m.mask))
                dist = Categorical(pi)
                logprobs = dist.log_prob(torch.stack(m.a))
                if a.fixed:
                    vals = vals.squeeze(1)
                ratios = torch.exp(logprobs - torch.stack(m.logprobs))
                advantages = returns_all[i] - vals.detach()
                surr1 = ratios * advantages
                surr2 = torch.clamp(ratios, 1 - a.eps_clip, 1 + a.eps_clip) * advantages
                v_loss = self.MSE(vals.reshape(-1), returns_all[i])
                p_loss = -torch.min(surr1, surr2).mean()
                ent = dist.entropy().mean()
                loss_sum = loss_sum + p_loss + 0.5 * v_loss - 0.01 * ent
                self.terms.append((surr1.numel(), logprobs.numel()))
            self.optimizer.zero_grad()
            (loss_sum / len(memories)).backward()
            self.optimizer.step()
        self.policy_old.load_state_dict(self.policy.state_dict())
        return float(loss_sum.detach()) / len(memories), float(v_loss.detach())


def validate(policy, n_j, n=40):
    env = FlowShop(n_j, np.random.default_rng(999))
    spans = []
    for _ in range(n):
        (fea, mask), done = env.reset(), False
        while not done:
            with torch.no_grad():
                pi, _ = policy(
                    torch.from_numpy(fea)[None], torch.from_numpy(mask)[None]
                )
            (fea, mask), _, done = env.step(int(pi.argmax()))
        spans.append(env.t[1])
    return float(np.mean(spans))


def main():
    args = get_args()
    torch.manual_seed(600)
    rng = np.random.default_rng(200)
    ppo = PPO(args)
    envs = [FlowShop(args.n_j, rng) for _ in range(args.num_envs)]
    print("makespan before training", round(validate(ppo.policy, args.n_j), 2))
    for it in range(max(1, args.steps // args.k_epochs)):
        memories = [Memory() for _ in envs]
        for env, m in zip(envs, memories):
            (fea, mask), done = env.reset(), False
            while not done:
                f, k = torch.from_numpy(fea), torch.from_numpy(mask)
                with torch.no_grad():
                    pi, _ = ppo.policy_old(f[None], k[None])
                    d = Categorical(pi)
                    act = d.sample()
                m.fea.append(f), m.mask.append(k), m.a.append(
                    act[0]
                ), m.logprobs.append(d.log_prob(act)[0])
                (fea, mask), r, done = env.step(int(act))
                m.r.append(r)
        loss, v_loss = ppo.update(memories)
        if it % 10 == 0:
            print(
                f"iter {it}  loss {loss:.4f}  v_loss {v_loss:.4f}  reward {np.mean([sum(m.r) for m in memories]):.3f}"
            )
    print("makespan after training", round(validate(ppo.policy, args.n_j), 2))
    if args.prove:
        terms, moves = np.array(ppo.terms).T
        print("surrogate terms per dispatch decision:", (terms / moves).mean())
        print("fault shows:", "yes" if (terms > moves).all() else "no")


if __name__ == "__main__":
    main()
