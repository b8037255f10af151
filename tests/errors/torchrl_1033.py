"""PPO on a vectorised point-mass reaching task, with a separate loss module."""
import argparse

import torch
from torch import nn
from torch.distributions import Independent, Normal

parser = argparse.ArgumentParser(description="ppo point mass")
parser.add_argument("--steps", type=int, default=160)
parser.add_argument("--num-envs", type=int, default=32)
parser.add_argument("--horizon", type=int, default=25)
parser.add_argument("--minibatch", type=int, default=200)
parser.add_argument("--gamma", type=float, default=0.97)
parser.add_argument("--lmbda", type=float, default=0.95)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()
torch.manual_seed(5)


class PointMass:
    """state: position, velocity, goal (2d each); the reward is the negative squared distance."""

    def __init__(self, n):
        self.n = n
        self.reset()

    def reset(self):
        self.pos = torch.randn(self.n, 2) * 2
        self.vel = torch.zeros(self.n, 2)
        self.goal = torch.randn(self.n, 2) * 2
        return self.obs()

    def obs(self):
        return torch.cat([self.pos, self.vel, self.goal - self.pos], -1)

    def step(self, action):
        self.vel = 0.8 * self.vel + 0.3 * action.clamp(-2, 2)
        self.pos = self.pos + 0.3 * self.vel
        reward = -0.1 * (self.goal - self.pos).pow(2).sum(-1) - 0.003 * action.pow(
            2
        ).sum(-1)
        return self.obs(), reward


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
        )
        self.log_std = nn.Parameter(torch.zeros(2) - 0.5)

    def forward(self, obs):
        return Independent(Normal(self.net(obs), self.log_std.exp()), 1)


class ClipPPOLoss(nn.Module):
    def __init__(
        self,
        actor,
        critic,
        clip_epsilon=0.2,
        entropy_coef=0.002,
        critic_coef=0.5,
        normalize_advantage=True,
    ):
        super().__init__()
        self.actor, self.critic = actor, critic
        self.clip_epsilon = clip_epsilon
        self.entropy_coef, self.critic_coef = entropy_coef, critic_coef
        self.normalize_advantage = normalize_advantage
        self.spread = []

    def forward(self, batch):
        advantage = batch["advantage"]
        dist = self.actor(batch["obs"])
        log_weight = dist.log_prob(batch["action"]) - batch["log_prob"]
        ratio = log_weight.exp()
        clipped = ratio.clamp(1 - self.clip_epsilon, 1 + self.clip_epsilon)

        gain1 = ratio * advantage
        if self.normalize_advantage and advantage.numel() > 1:
            advantage = (advantage - advantage.mean()) / advantage.std().clamp(min=1e-6)
        if args.fixed:
            gain1 = ratio * advantage
        gain2 = clipped * advantage
        gain = torch.min(gain1, gain2)

        if args.prove:
            self.spread.append((gain1 / ratio - gain2 / clipped).abs().max().item())
        value = self.critic(batch["obs"]).squeeze(-1)
        return {
            "loss_objective": -gain.mean(),
            "loss_critic": self.critic_coef
            * nn.functional.smooth_l1_loss(value, batch["value_target"]),
            "loss_entropy": -self.entropy_coef
            * dist.base_dist.entropy().sum(-1).mean(),
        }


@torch.no_grad()
def collect(env, actor, critic, horizon):
    obs = env.reset()
    data = {k: [] for k in ("obs", "action", "log_prob", "reward", "value")}
    for _ in range(horizon):
        dist = actor(obs)
        action = dist.sample()
        nxt, reward = env.step(action)
        for k, v in (
            ("obs", obs),
            ("action", action),
            ("log_prob", dist.log_prob(action)),
            ("reward", reward),
            ("value", critic(obs).squeeze(-1)),
        ):
            data[k].append(v)
        obs = nxt
    data = {k: torch.stack(v) for k, v in data.items()}
    last, adv = critic(obs).squeeze(-1), torch.zeros(env.n)
    out = []
    for t in reversed(range(horizon)):
        delta = data["reward"][t] + args.gamma * last - data["value"][t]
        adv = delta + args.gamma * args.lmbda * adv
        last = data["value"][t]
        out.append(adv)
    data["advantage"] = torch.stack(out[::-1])
    data["value_target"] = data["advantage"] + data["value"]
    return {k: v.flatten(0, 1) for k, v in data.items()}


env = PointMass(args.num_envs)
actor = Actor()
critic = nn.Sequential(
    nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
)
loss_module = ClipPPOLoss(actor, critic)
optim = torch.optim.Adam(loss_module.parameters(), lr=3e-4)

step = 0
while step < args.steps:
    data = collect(env, actor, critic, args.horizon)
    for _ in range(3):
        perm = torch.randperm(data["obs"].shape[0])
        for idx in perm.split(args.minibatch):
            if step >= args.steps:
                break
            losses = loss_module({k: v[idx] for k, v in data.items()})
            total = sum(losses.values())
            optim.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(loss_module.parameters(), 1.0)
            optim.step()
            step += 1
    print(
        f"step {step} mean reward {data['reward'].mean().item():.3f} "
        f"objective {losses['loss_objective'].item():.4f}"
    )

if args.prove:
    # both gains must weigh the same advantage
    print(
        f"largest advantage difference between the gains {max(loss_module.spread):.5f}"
    )
    print("fault shows:", "yes" if max(loss_module.spread) > 1e-2 else "no")
