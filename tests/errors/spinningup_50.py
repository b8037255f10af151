"""
Vanilla PPO-clip in one file, on a small hand written point-on-a-line game.
Buffer layout follows the usual "store / finish_path / get" pattern.
"""
import argparse
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.normal import Normal


class LineWorld:
    """push a cart to the flag; sparse bonus on arrival, small cost for force"""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def reset(self):
        self.x = self.rng.uniform(-1.0, -0.4)
        self.v = 0.0
        self.k = 0
        return self._o()

    def _o(self):
        return np.array([self.x, self.v, self.k / 30.0], dtype=np.float32)

    def step(self, a):
        f = float(np.clip(a, -1, 1))
        self.v = 0.85 * self.v + 0.06 * f
        self.x = float(np.clip(self.x + self.v, -1.2, 1.2))
        self.k += 1
        goal = self.x > 0.5
        r = -0.02 * f * f - 0.01 + (1.0 if goal else 0.0)
        return self._o(), r, goal or self.k >= 30


def discount_cumsum(x, discount):
    out = np.zeros_like(x)
    run = 0.0
    for i in range(len(x) - 1, -1, -1):
        run = x[i] + discount * run
        out[i] = run
    return out


class PPOBuffer:
    def __init__(self, obs_dim, act_dim, size, gamma=0.99, lam=0.95):
        self.obs_buf = np.zeros((size, obs_dim), dtype=np.float32)
        self.act_buf = np.zeros((size, act_dim), dtype=np.float32)
        self.adv_buf = np.zeros(size, dtype=np.float32)
        self.rew_buf = np.zeros(size, dtype=np.float32)
        self.ret_buf = np.zeros(size, dtype=np.float32)
        self.val_buf = np.zeros(size, dtype=np.float32)
        self.logp_buf = np.zeros(size, dtype=np.float32)
        self.gamma, self.lam = gamma, lam
        self.ptr, self.path_start_idx, self.max_size = 0, 0, size

    def store(self, obs, act, rew, val, logp):
        assert self.ptr < self.max_size
        self.obs_buf[self.ptr] = obs
        self.act_buf[self.ptr] = act
        self.rew_buf[self.ptr] = rew
        self.val_buf[self.ptr] = val
        self.logp_buf[self.ptr] = logp
        self.ptr += 1

    def finish_path(self, last_val=0):
        sl = slice(self.path_start_idx, self.ptr)
        rews = np.append(self.rew_buf[sl], last_val)
        vals = np.append(self.val_buf[sl], last_val)
        deltas = rews[:-1] + self.gamma * vals[1:] - vals[:-1]
        self.adv_buf[sl] = discount_cumsum(deltas, self.gamma * self.lam)
        self.ret_buf[sl] = discount_cumsum(rews, self.gamma)[:-1]
        self.path_start_idx = self.ptr

    def get(self):
        self.ptr, self.path_start_idx = 0, 0
        adv = (self.adv_buf - self.adv_buf.mean()) / (self.adv_buf.std() + 1e-8)
        return [
            torch.as_tensor(v)
            for v in (self.obs_buf, self.act_buf, adv, self.ret_buf, self.logp_buf)
        ]


def mlp(sizes):
    layers = []
    for j in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[j], sizes[j + 1])]
        layers += [nn.Tanh()] if j < len(sizes) - 2 else []
    return nn.Sequential(*layers)


class MLPActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = mlp([3, 32, 32, 1])
        self.log_std = nn.Parameter(-0.5 * torch.ones(1))
        self.v = mlp([3, 32, 32, 1])

    def dist(self, obs):
        return Normal(self.mu(obs), self.log_std.exp())

    @torch.no_grad()
    def step(self, obs):
        o = torch.as_tensor(obs)[None]
        pi = self.dist(o)
        a = pi.sample()
        return a[0].numpy(), self.v(o).item(), pi.log_prob(a).sum().item()


def ppo(args):
    torch.manual_seed(args.seed)
    env, ac = LineWorld(args.seed), MLPActorCritic()
    pi_opt = torch.optim.Adam(list(ac.mu.parameters()) + [ac.log_std], lr=1e-3)
    v_opt = torch.optim.Adam(ac.v.parameters(), lr=2e-3)
    buf = PPOBuffer(3, 1, args.steps_per_epoch)
    iters = 10
    true_rews = np.zeros(args.steps_per_epoch, dtype=np.float32)
    agree = []

    for epoch in range(max(1, args.steps // (2 * iters))):
        o, r, d, ep_ret, rets = env.reset(), 0.0, False, 0.0, []
        for t in range(args.steps_per_epoch):
            a, v, logp = ac.step(o)
            if args.fixed:
                o2, r, d = env.step(a[0])
                buf.store(o, a, r, v, logp)
            else:
                buf.store(o, a, r, v, logp)
                o2, r, d = env.step(a[0])
            true_rews[t] = r
            o = o2
            ep_ret += r
            if d or t == args.steps_per_epoch - 1:
                last = 0.0 if d else ac.step(o)[1]
                buf.finish_path(last)
                if d:
                    rets.append(ep_ret)
                o, r, ep_ret, d = env.reset(), 0.0, 0.0, False
        agree.append(float(np.abs(buf.rew_buf - true_rews).max()))

        obs, act, adv, ret, logp_old = buf.get()
        for _ in range(iters):
            pi = ac.dist(obs)
            ratio = (pi.log_prob(act).sum(-1) - logp_old).exp()
            loss_pi = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            pi_opt.zero_grad()
            loss_pi.backward()
            pi_opt.step()
        for _ in range(iters):
            loss_v = ((ac.v(obs).squeeze(-1) - ret) ** 2).mean()
            v_opt.zero_grad()
            loss_v.backward()
            v_opt.step()
        print(
            "epoch %2d  EpRet %.3f  LossPi %.4f  LossV %.4f"
            % (epoch, np.mean(rets), loss_pi.item(), loss_v.item())
        )

    if args.prove:
        print(
            "largest gap between buffer reward and reward of that action: %.4f"
            % max(agree)
        )
        print("fault shows:", "yes" if max(agree) > 0.1 else "no")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps", type=int, default=200, help="optimizer steps (policy + value)"
    )
    ap.add_argument("--steps_per_epoch", type=int, default=400)
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    ppo(ap.parse_args())
