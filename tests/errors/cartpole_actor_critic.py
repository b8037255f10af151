"""Actor-critic on a home-made cart-pole; one update per batch of episodes."""
import argparse
import math

import torch
from torch import nn
from torch.distributions import Categorical


class VecCartPole:
    """several cart-poles side by side, all tensors"""

    def __init__(self, n, gen):
        self.n, self.gen = n, gen
        self.state = self.fresh()
        self.age = torch.zeros(n)

    def fresh(self):
        return (torch.rand(self.n, 4, generator=self.gen) - 0.5) * 0.1

    def step(self, action):
        x, v, th, w = self.state.unbind(1)
        force = torch.where(action == 1, 10.0, -10.0)
        cos, sin = th.cos(), th.sin()
        tmp = (force + 0.05 * w**2 * sin) / 1.1
        acc_th = (9.8 * sin - cos * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        acc_x = tmp - 0.05 * acc_th * cos / 1.1
        dt = 0.02
        new = torch.stack([x + dt * v, v + dt * acc_x, th + dt * w, w + dt * acc_th], 1)
        done = (new[:, 0].abs() > 2.4) | (new[:, 2].abs() > 12 * math.pi / 180)
        self.age += 1
        length = self.age.clone()
        self.state = torch.where(done[:, None], self.fresh(), new)
        self.age = torch.where(done, torch.zeros(self.n), self.age)
        return self.state, torch.ones(self.n), done.float(), length


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, s):
        return Categorical(logits=self.net(s))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, s):
        return self.net(s).squeeze(-1)


def rollout(env, actor, horizon, gen):
    states, actions, rewards, dones, lengths = [], [], [], [], []
    s = env.state
    with torch.no_grad():
        for _ in range(horizon):
            a = torch.multinomial(actor(s).probs, 1, generator=gen).squeeze(1)
            nxt, r, d, ln = env.step(a)
            states.append(s)
            actions.append(a)
            rewards.append(r)
            dones.append(d)
            lengths.append(ln[d > 0])
            s = nxt
    finished = torch.cat(lengths)
    return (
        torch.stack(states),
        torch.stack(actions),
        torch.stack(rewards),
        torch.stack(dones),
        s,
        finished,
    )


def returns_to_go(rewards, dones, last_value, gamma):
    out = torch.zeros_like(rewards)
    run = last_value
    for t in reversed(range(len(rewards))):
        run = rewards[t] + gamma * run * (1 - dones[t])
        out[t] = run
    return out


def policy_terms(actor, critic, s, a, ret, args):
    dist = actor(s)
    value = critic(s)
    advantage = ret - value
    if args.fixed:
        advantage = advantage.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    pg = -(dist.log_prob(a) * advantage).mean()
    entropy = dist.entropy().mean()
    return pg, value, entropy


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--envs", type=int, default=16)
    p.add_argument("--horizon", type=int, default=32)
    p.add_argument("--gamma", type=float, default=0.98)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    torch.manual_seed(31)
    gen = torch.Generator().manual_seed(31)
    env = VecCartPole(args.envs, gen)
    actor, critic = Actor(), Critic()
    opt = torch.optim.Adam(
        [
            {"params": actor.parameters(), "lr": 5e-3},
            {"params": critic.parameters(), "lr": 1e-2},
        ]
    )

    recent = 0.0
    for step in range(args.steps):
        s, a, r, d, last, finished = rollout(env, actor, args.horizon, gen)
        with torch.no_grad():
            ret = returns_to_go(r, d, critic(last), args.gamma)
        pg, value, ent = policy_terms(actor, critic, s, a, ret, args)
        value_loss = nn.functional.smooth_l1_loss(value, ret)
        loss = pg + 0.5 * value_loss - 0.01 * ent
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(
            list(actor.parameters()) + list(critic.parameters()), 1.0
        )
        opt.step()
        if len(finished):
            recent = finished.mean().item()
        if (step + 1) % 20 == 0:
            print(
                f"update {step + 1}: pg {pg.item():+.4f} value loss {value_loss.item():.3f} "
                f"entropy {ent.item():.3f} mean length {recent:.1f}"
            )

    if args.prove:
        pg, _, _ = policy_terms(actor, critic, s, a, ret, args)
        grads = torch.autograd.grad(pg, list(critic.parameters()), allow_unused=True)
        size = sum(g.abs().sum().item() for g in grads if g is not None)
        print("fault shows:", "yes" if size > 1e-6 else "no")


if __name__ == "__main__":
    main()
