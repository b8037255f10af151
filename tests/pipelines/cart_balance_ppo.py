"""PPO on a vectorised pole balancing task written in numpy (same physics as the classic one)."""
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class PoleVec:
    """n carts at once, automatic reset. Episodes end by falling or after `limit` steps."""

    def __init__(self, n, seed, limit=200):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.s = np.zeros((n, 4))
        self.t = np.zeros(n, dtype=int)
        self.returns = np.zeros(n)

    def _fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, (k, 4))

    def reset(self):
        self.s, self.t[:], self.returns[:] = self._fresh(self.n), 0, 0.0
        return self.s.astype(np.float32)

    def step(self, action):
        x, v, th, w = self.s.T
        force = np.where(action == 1, 10.0, -10.0)
        cos, sin = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w**2 * sin) / 1.1
        acc_th = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        acc_x = tmp - 0.05 * acc_th * cos / 1.1
        self.s = np.stack(
            [x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * w, w + 0.02 * acc_th], 1
        )
        self.t += 1
        self.returns += 1.0
        fell = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.2095)
        timeout = (self.t >= self.limit) & ~fell
        done = fell | timeout
        final_obs = self.s.astype(np.float32)
        finished = self.returns[done].tolist()
        if done.any():
            self.s[done] = self._fresh(done.sum())
            self.t[done], self.returns[done] = 0, 0.0
        return (
            self.s.astype(np.float32),
            np.ones(self.n, np.float32),
            fell,
            timeout,
            final_obs,
            finished,
        )


def layer_init(layer, std=np.sqrt(2), bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self, obs=4, act=2, hid=48):
        super().__init__()

        def mlp(out, std):
            return nn.Sequential(
                layer_init(nn.Linear(obs, hid)),
                nn.Tanh(),
                layer_init(nn.Linear(hid, hid)),
                nn.Tanh(),
                layer_init(nn.Linear(hid, out), std),
            )

        self.actor, self.critic = mlp(act, 0.01), mlp(1, 1.0)

    def value(self, o):
        return self.critic(o).squeeze(-1)

    def dist(self, o):
        return Categorical(logits=self.actor(o))


@torch.no_grad()
def greedy_return(agent, seed, n=8):
    env = PoleVec(n, seed)
    obs, scores = env.reset(), []
    while len(scores) < n:
        a = agent.dist(torch.from_numpy(obs)).logits.argmax(-1)
        obs, _, _, _, _, fin = env.step(a.numpy())
        scores += fin
    return float(np.mean(scores[:n]))


def rollout(env, agent, obs, T, N):
    """T steps of N poles: what was seen, done and got, and where a pole was cut off."""
    O, A, LP = (
        torch.zeros(T, N, 4),
        torch.zeros(T, N, dtype=torch.long),
        torch.zeros(T, N),
    )
    R, V, NV, CUT = (
        torch.zeros(T, N),
        torch.zeros(T, N),
        torch.zeros(T, N),
        torch.zeros(T, N),
    )
    scores = []
    for t in range(T):
        with torch.no_grad():
            d = agent.dist(obs)
            act = d.sample()
            O[t], A[t], LP[t], V[t] = obs, act, d.log_prob(act), agent.value(obs)
            nxt, rew, fell, timeout, final_obs, fin = env.step(act.numpy())
            # a fallen pole has no future; a time limit has one, so we bootstrap from the last state
            NV[t] = (
                agent.value(torch.from_numpy(final_obs))
                * torch.from_numpy(~fell).float()
            )
        R[t] = torch.from_numpy(rew)
        CUT[t] = torch.from_numpy(fell | timeout).float()
        obs = torch.from_numpy(nxt)
        scores += fin
    return obs, scores, (O, A, LP, R, V, NV, CUT)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--updates",
        "--steps",
        dest="updates",
        type=int,
        default=10,
        help="rollout/learn rounds",
    )
    p.add_argument("--envs", type=int, default=8)
    p.add_argument("--horizon", type=int, default=64)
    p.add_argument("--inner-epochs", type=int, default=4)
    p.add_argument("--minibatches", type=int, default=4)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--lam", type=float, default=0.95)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--ent", type=float, default=0.005)
    p.add_argument("--target-kl", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    a = parse_args()
    torch.manual_seed(a.seed)
    shuffle = np.random.default_rng(a.seed)

    env = PoleVec(a.envs, a.seed)
    agent = Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=a.lr, eps=1e-5)
    obs = torch.from_numpy(env.reset())
    T, N = a.horizon, a.envs
    print(f"greedy return before training {greedy_return(agent, 1234):.0f}")

    for update in range(a.updates):
        opt.param_groups[0]["lr"] = a.lr * (1 - update / a.updates)
        obs, scores, (O, A, LP, R, V, NV, CUT) = rollout(env, agent, obs, T, N)
        adv, last = torch.zeros(T, N), torch.zeros(N)
        for t in reversed(range(T)):
            delta = R[t] + a.gamma * NV[t] - V[t]
            last = delta + a.gamma * a.lam * (1 - CUT[t]) * last
            adv[t] = last
        ret = adv + V
        b = dict(
            o=O.flatten(0, 1),
            a=A.flatten(),
            lp=LP.flatten(),
            adv=adv.flatten(),
            ret=ret.flatten(),
        )

        stop = False
        for _ in range(a.inner_epochs):
            for idx in np.array_split(shuffle.permutation(T * N), a.minibatches):
                idx = torch.from_numpy(idx)
                d = agent.dist(b["o"][idx])
                log_ratio = d.log_prob(b["a"][idx]) - b["lp"][idx]
                ratio = log_ratio.exp()
                approx_kl = (ratio - 1 - log_ratio).mean().item()
                if approx_kl > a.target_kl:
                    stop = True
                    break
                m = b["adv"][idx]
                m = (m - m.mean()) / (m.std() + 1e-8)
                pg = -torch.min(
                    ratio * m, ratio.clamp(1 - a.clip, 1 + a.clip) * m
                ).mean()
                vf = 0.5 * (agent.value(b["o"][idx]) - b["ret"][idx]).pow(2).mean()
                loss = pg + 0.5 * vf - a.ent * d.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
            if stop:
                break
        mean = np.mean(scores) if scores else float("nan")
        print(
            f"update {update:2d} return {mean:6.1f} pg {pg.item():+.3f} vf {vf.item():.2f} kl {approx_kl:.4f}"
        )
    print(f"greedy return after training {greedy_return(agent, 1234):.0f}")


if __name__ == "__main__":
    main()
