"""PPO for a cart that has to reach and hold a target position. Episodes have a fixed length of 25 steps."""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.distributions import Normal


@dataclass
class Config:
    num_envs: int = 32
    rollouts: int = 40
    learning_epochs: int = 2
    mini_batches: int = 2
    discount_factor: float = 0.97
    gae_lambda: float = 0.95
    learning_rate: float = 1e-3
    ratio_clip: float = 0.2
    value_loss_scale: float = 0.5
    entropy_scale: float = 0.002
    grad_norm_clip: float = 0.5


class CartEnv:
    """num_envs carts side by side; resets itself, like the simulators do."""

    max_episode_length = 25

    def __init__(self, n, seed=0):
        self.n, self.g = n, torch.Generator().manual_seed(seed)
        self.state = self._sample(n)
        # spread the episode counters so that not all carts reset together
        self.t = torch.arange(n) % self.max_episode_length

    def _sample(self, n):
        pos = torch.rand(n, 1, generator=self.g) * 4 - 2
        return torch.cat([pos, torch.zeros(n, 1)], dim=1)

    def step(self, action):
        a = action.clamp(-1, 1)
        vel = 0.9 * self.state[:, 1:] + 0.2 * a
        pos = self.state[:, :1] + vel * 0.5
        self.state = torch.cat([pos, vel], dim=1)
        reward = 1.0 - pos.abs() - 0.05 * a**2
        terminated = pos.abs() > 3.0
        self.t += 1
        truncated = (self.t >= self.max_episode_length).unsqueeze(1) & ~terminated
        final_state = self.state.clone()
        reset = (terminated | truncated).squeeze(1)
        if reset.any():
            self.state[reset] = self._sample(int(reset.sum()))
            self.t[reset] = 0
        return self.state.clone(), final_state, reward, terminated, truncated


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((1,), -0.5))

    def dist(self, obs):
        return Normal(self.actor(obs), self.log_std.exp())


def compute_gae(
    rewards, terminated, truncated, values, last_values, final_values, gamma, lam, args
):
    advantages = torch.zeros_like(rewards)
    next_values = torch.cat([values[1:], last_values.unsqueeze(0)])
    if args.fixed:
        next_values = torch.where(truncated, final_values, next_values)
        carry_on = (terminated | truncated).logical_not()
    else:
        carry_on = terminated.logical_not()
    advantage = 0
    for i in reversed(range(len(rewards))):
        delta = (
            rewards[i]
            - values[i]
            + gamma * terminated[i].logical_not() * next_values[i]
        )
        advantage = delta + gamma * lam * carry_on[i] * advantage
        advantages[i] = advantage
    return advantages, advantages + values


@torch.no_grad()
def collect(env, net, obs, cfg, args):
    mem = {k: [] for k in ("obs", "act", "logp", "val", "rew", "term", "trunc", "fval")}
    for _ in range(cfg.rollouts):
        d = net.dist(obs)
        act = d.sample()
        nxt, final, rew, term, trunc = env.step(act)
        for k, v in zip(
            mem,
            (
                obs,
                act,
                d.log_prob(act),
                net.critic(obs),
                rew,
                term,
                trunc,
                net.critic(final),
            ),
        ):
            mem[k].append(v)
        obs = nxt
    m = {k: torch.stack(v) for k, v in mem.items()}
    adv, ret = compute_gae(
        m["rew"],
        m["term"],
        m["trunc"],
        m["val"],
        net.critic(obs),
        m["fval"],
        cfg.discount_factor,
        cfg.gae_lambda,
        args,
    )
    return m, adv, ret, obs


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--steps", type=int, default=120, help="number of optimizer steps"
    )
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    cfg = Config()
    torch.manual_seed(7)

    env, net = CartEnv(cfg.num_envs), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=cfg.learning_rate)
    obs = env.state.clone()
    done_steps, worst = 0, 0.0
    while done_steps < args.steps:
        m, adv, ret, obs = collect(env, net, obs, cfg, args)
        if args.prove:
            # last step of an episode: its own reward plus the value of the end state
            alone = m["rew"] + cfg.discount_factor * m["fval"] - m["val"]
            if m["trunc"].any():
                worst = max(worst, (adv - alone)[m["trunc"]].abs().max().item())

        flat = {k: v.reshape(-1, v.shape[-1]) for k, v in m.items()}
        adv, ret = adv.reshape(-1, 1), ret.reshape(-1, 1)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(cfg.learning_epochs):
            for idx in torch.randperm(len(adv)).chunk(cfg.mini_batches):
                if done_steps >= args.steps:
                    break
                d = net.dist(flat["obs"][idx])
                ratio = (d.log_prob(flat["act"][idx]) - flat["logp"][idx]).exp()
                clipped = ratio.clamp(1 - cfg.ratio_clip, 1 + cfg.ratio_clip)
                policy_loss = -torch.min(ratio * adv[idx], clipped * adv[idx]).mean()
                value_loss = (
                    cfg.value_loss_scale
                    * (net.critic(flat["obs"][idx]) - ret[idx]).pow(2).mean()
                )
                loss = policy_loss + value_loss - cfg.entropy_scale * d.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), cfg.grad_norm_clip)
                opt.step()
                done_steps += 1
        if done_steps % 20 == 0:
            print(
                f"step {done_steps:4d}  reward {m['rew'].mean().item():+.3f}  value loss {value_loss.item():.3f}"
            )

    if args.prove:
        print("largest foreign part in an episode's last advantage:", round(worst, 5))
        print("fault shows:", "yes" if worst > 1e-3 else "no")


if __name__ == "__main__":
    main()
