# PPO post-training of a small chunked-action policy on a vectorised reach task.
import argparse
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.distributions import Normal


@dataclass
class Cfg:
    num_envs: int = 32
    horizon: int = 40
    chunk: int = 2
    gamma: float = 0.97
    lam: float = 0.95
    clip: float = 0.2
    value_clip: float = 5.0
    huber_delta: float = 10.0
    ent: float = 1e-3
    vf: float = 0.5
    epochs: int = 2
    minibatches: int = 5
    lr: float = 1e-3
    seed: int = 7
    steps: int = 150
    fixed: bool = False


class ReachEnv:
    """planar arm tip that has to come to a goal; reward is minus the distance."""

    def __init__(self, n, gen):
        self.n, self.gen = n, gen
        self.reset_all()

    def _fresh(self, k):
        return torch.rand(k, 2, generator=self.gen) * 2 - 1

    def reset_all(self):
        self.tip, self.goal = self._fresh(self.n), self._fresh(self.n)
        self.t = torch.randint(0, 20, (self.n,), generator=self.gen)

    def obs(self):
        return torch.cat(
            [self.tip, self.goal, self.goal - self.tip, self.t[:, None] / 20.0], dim=-1
        )

    def step_chunk(self, actions):
        r = torch.zeros(self.n)
        for k in range(actions.shape[1]):
            self.tip = (self.tip + 0.1 * actions[:, k].clamp(-1, 1)).clamp(-1.2, 1.2)
            r += -(self.tip - self.goal).norm(dim=-1)
        self.t += 1
        done = self.t >= 20
        if done.any():
            k = int(done.sum())
            self.tip[done], self.goal[done], self.t[done] = (
                self._fresh(k),
                self._fresh(k),
                0,
            )
        return self.obs(), r, done.float()


class ActionExpert(nn.Module):
    def __init__(self, cfg, obs_dim=7, act_dim=2, width=96):
        super().__init__()
        self.cfg, self.act_dim = cfg, act_dim
        self.trunk = nn.Sequential(
            nn.Linear(obs_dim, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.mu = nn.Linear(width, cfg.chunk * act_dim)
        self.log_std = nn.Parameter(torch.full((cfg.chunk * act_dim,), -0.5))
        self.value_head = nn.Sequential(
            nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def get_value(self, h):
        v = self.value_head(h)[:, 0]
        if self.cfg.fixed:
            v = v[:, None]
        return v

    @torch.no_grad()
    def predict_action_batch(self, obs):
        h = self.trunk(obs)
        d = Normal(self.mu(h), self.log_std.exp())
        a = d.sample()
        return a, d.log_prob(a).sum(-1, keepdim=True), self.value_head(h)

    def forward(self, obs, act):
        h = self.trunk(obs)
        d = Normal(self.mu(h), self.log_std.exp())
        return {
            "logprobs": d.log_prob(act).sum(-1, keepdim=True),
            "entropy": d.entropy().sum(-1, keepdim=True),
            "values": self.get_value(h),
        }


def huber(e, delta):
    return torch.where(e.abs() < delta, 0.5 * e**2, delta * (e.abs() - 0.5 * delta))


def actor_loss(logprobs, old_logprobs, adv, clip):
    ratio = (logprobs - old_logprobs).exp()
    return torch.max(-adv * ratio, -adv * ratio.clamp(1 - clip, 1 + clip)).mean()


def critic_loss(values, returns, prev_values, value_clip, delta):
    clipped = prev_values + (values - prev_values).clamp(-value_clip, value_clip)
    return torch.max(
        huber(returns - values, delta), huber(returns - clipped, delta)
    ).mean()


def gae(rew, val, done, last, gamma, lam):
    adv, run = torch.zeros_like(rew), torch.zeros_like(last)
    for t in reversed(range(len(rew))):
        nxt = last if t == len(rew) - 1 else val[t + 1]
        delta = rew[t] + gamma * nxt * (1 - done[t]) - val[t]
        run = delta + gamma * lam * (1 - done[t]) * run
        adv[t] = run
    return adv, adv + val


class EmbodiedRunner:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.env = ReachEnv(cfg.num_envs, torch.Generator().manual_seed(cfg.seed))
        self.model = ActionExpert(cfg)
        self.opt = torch.optim.AdamW(
            self.model.parameters(), lr=cfg.lr, weight_decay=1e-4
        )
        self.global_step = 0

    def rollout(self):
        c, keep, obs = self.cfg, [], self.env.obs()
        for _ in range(c.horizon):
            a, lp, v = self.model.predict_action_batch(obs)
            nobs, r, d = self.env.step_chunk(a.view(c.num_envs, c.chunk, -1))
            keep.append((obs, a, lp, v, r[:, None], d[:, None]))
            obs = nobs
        obs_b, act, lp, val, rew, done = [torch.stack(x) for x in zip(*keep)]
        last = self.model.predict_action_batch(obs)[2]
        adv, ret = gae(rew, val, done, last, c.gamma, c.lam)
        flat = dict(obs=obs_b, act=act, lp=lp, val=val, adv=adv, ret=ret)
        return {k: v.flatten(0, 1) for k, v in flat.items()}, rew.mean().item()

    def update(self, b):
        c, n = self.cfg, len(b["obs"])
        for _ in range(c.epochs):
            for idx in torch.randperm(n).chunk(c.minibatches):
                if self.global_step >= c.steps:
                    return
                mb = {k: v[idx] for k, v in b.items()}
                adv = (mb["adv"] - mb["adv"].mean()) / (mb["adv"].std() + 1e-8)
                out = self.model(mb["obs"], mb["act"])
                pl = actor_loss(out["logprobs"], mb["lp"], adv, c.clip)
                vl = critic_loss(
                    out["values"], mb["ret"], mb["val"], c.value_clip, c.huber_delta
                )
                loss = pl + c.vf * vl - c.ent * out["entropy"].mean()
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.opt.step()
                self.global_step += 1
                self.stats = pl.item(), vl.item()

    def run(self):
        it = 0
        while self.global_step < self.cfg.steps:
            b, r = self.rollout()
            self.update(b)
            print(
                f"iter {it:2d} step {self.global_step:3d} reward {r:.3f} pi {self.stats[0]:+.4f} vf {self.stats[1]:.4f}"
            )
            it += 1


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=250)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    a = p.parse_args()
    runner = EmbodiedRunner(Cfg(steps=a.steps, fixed=a.fixed))
    runner.run()
    if a.prove:
        b, _ = runner.rollout()
        v = runner.model(b["obs"], b["act"])["values"]
        loss = critic_loss(
            v, b["ret"], b["val"], runner.cfg.value_clip, runner.cfg.huber_delta
        )
        (g,) = torch.autograd.grad(loss, v)
        own = (v.reshape(-1) - b["ret"].reshape(-1)).clamp(-10, 10) / len(v)
        off = (g.reshape(-1) - own).norm() / own.norm()
        print("fault shows:", "yes" if off > 0.3 else "no")
