# MAPPO for a cooperative "spread" game: three agents on a line have to cover three marks.
# Shared actor, centralised critic, running value normalisation.
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F


def get_config():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--n_rollout_threads", type=int, default=24)
    p.add_argument("--episode_length", type=int, default=20)
    p.add_argument("--ppo_epoch", type=int, default=5)
    p.add_argument("--use_popart", action="store_true", default=False)
    p.add_argument(
        "--no_valuenorm", dest="use_valuenorm", action="store_false", default=True
    )
    p.add_argument("--gamma", type=float, default=0.95)
    p.add_argument("--gae_lambda", type=float, default=0.9)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


class ValueNorm(nn.Module):
    def __init__(self, beta=0.98):
        super().__init__()
        self.beta = beta
        self.register_buffer("m", torch.zeros(1))
        self.register_buffer("m2", torch.zeros(1))
        self.register_buffer("debias", torch.zeros(1))

    @torch.no_grad()
    def update(self, x):
        self.m.mul_(self.beta).add_(x.mean() * (1 - self.beta))
        self.m2.mul_(self.beta).add_(x.pow(2).mean() * (1 - self.beta))
        self.debias.mul_(self.beta).add_(1 - self.beta)

    def stats(self):
        d = self.debias.clamp(min=1e-5)
        mean = self.m / d
        return mean, (self.m2 / d - mean**2).clamp(min=1e-2)

    def normalize(self, x):
        mean, var = self.stats()
        return (x - mean) / var.sqrt()

    def denormalize(self, x):
        mean, var = self.stats()
        return x * var.sqrt() + mean


class SpreadEnv:
    n_agents = 3

    def __init__(self, n):
        self.n = n

    def reset(self):
        self.pos = torch.rand(self.n, 3) * 10
        self.marks = torch.rand(self.n, 3).mul(10).sort(1).values
        return self.observe()

    def observe(self):
        share = torch.cat([self.pos, self.marks], 1) / 5 - 1
        own = torch.eye(3).expand(self.n, 3, 3)
        obs = torch.cat(
            [share.unsqueeze(1).expand(-1, 3, -1), self.pos.unsqueeze(2) / 5 - 1, own],
            2,
        )
        return obs, share

    def step(self, act):
        self.pos = (self.pos + (act.float() - 1) * 0.8).clamp(0, 10)
        dist = (self.marks.unsqueeze(2) - self.pos.unsqueeze(1)).abs()
        return self.observe(), -3 * dist.min(2).values.sum(1)


def mlp(i, o):
    return nn.Sequential(
        nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, o)
    )


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.actor, self.critic = mlp(10, 3), mlp(6, 1)
        self.value_normalizer = ValueNorm()
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.step, self.errors = 0, []

    def collect(self, env):
        buf = {
            "obs": [],
            "share": [],
            "act": [],
            "logp": [],
            "rew": [],
            "value_preds": [],
        }
        obs, share = env.reset()
        with torch.no_grad():
            for _ in range(self.cfg.episode_length):
                dist = torch.distributions.Categorical(logits=self.actor(obs))
                act = dist.sample()
                (nobs, nshare), rew = env.step(act)
                for k, v in zip(
                    buf,
                    (
                        obs,
                        share,
                        act,
                        dist.log_prob(act),
                        rew,
                        self.critic(share)[:, 0],
                    ),
                ):
                    buf[k].append(v)
                obs, share = nobs, nshare
            buf["value_preds"].append(self.critic(share)[:, 0])
        return {k: torch.stack(v) for k, v in buf.items()}

    def compute_returns(self, buf):
        values = buf["value_preds"]
        if self.cfg.use_popart or self.cfg.use_valuenorm:
            values = self.value_normalizer.denormalize(values)
        gae, out = 0.0, []
        for t in reversed(range(self.cfg.episode_length)):
            delta = buf["rew"][t] + self.cfg.gamma * values[t + 1] - values[t]
            gae = delta + self.cfg.gamma * self.cfg.gae_lambda * gae
            out.append(gae + values[t])
        return torch.stack(out[::-1])

    def train(self, buf):
        cfg = self.cfg
        returns = self.compute_returns(buf)
        preds = buf["value_preds"][:-1]
        denormalize = cfg.use_popart
        if cfg.fixed:
            denormalize = cfg.use_popart or cfg.use_valuenorm
        advantages = returns - (
            self.value_normalizer.denormalize(preds) if denormalize else preds
        )
        if cfg.prove:
            ref = returns - self.value_normalizer.denormalize(preds)
            self.errors.append(
                ((advantages - ref).abs().mean() / ref.abs().mean()).item()
            )
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-5)
        adv = advantages.unsqueeze(2)

        if cfg.use_popart or cfg.use_valuenorm:
            self.value_normalizer.update(returns)
        for _ in range(cfg.ppo_epoch):
            if self.step >= cfg.steps:
                break
            dist = torch.distributions.Categorical(logits=self.actor(buf["obs"]))
            ratio = (dist.log_prob(buf["act"]) - buf["logp"]).exp()
            policy_loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            self.actor_opt.zero_grad()
            (policy_loss - 0.01 * dist.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(self.actor.parameters(), 10.0)
            self.actor_opt.step()

            target = (
                self.value_normalizer.normalize(returns)
                if cfg.use_valuenorm
                else returns
            )
            value_loss = F.huber_loss(self.critic(buf["share"])[..., 0], target)
            self.critic_opt.zero_grad()
            value_loss.backward()
            self.critic_opt.step()
            self.step += 1
        return policy_loss.item(), value_loss.item()


if __name__ == "__main__":
    cfg = get_config()
    torch.manual_seed(1)
    env, trainer = SpreadEnv(cfg.n_rollout_threads), Trainer(cfg)
    while trainer.step < cfg.steps:
        buf = trainer.collect(env)
        pl, vl = trainer.train(buf)
        print(
            f"updates {trainer.step} average step reward {buf['rew'].mean():.3f} policy {pl:.4f} value {vl:.4f}"
        )
    if cfg.prove:
        late = max(trainer.errors)
        print(f"advantage error relative to its size: {late:.4f}")
        print("fault shows:", "yes" if late > 0.05 else "no")
