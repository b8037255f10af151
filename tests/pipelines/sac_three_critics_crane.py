"""
Soft actor-critic on a gantry crane: bring the load over the target without swinging.

Three critics, of which two drawn at random make the target; the policy is updated every
second update of the critics (twice, to make up for it), target networks follow by Polyak
averaging, and the temperature is learnt. Episodes end by the clock only, which is a
truncation, so that targets are always bootstrapped.
"""

import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LOG_STD_MIN, LOG_STD_MAX = -5, 2


class Crane:
    """Trolley position and speed, swing and its rate, for a batch of cranes at once."""

    horizon, dt = 50, 0.1

    def __init__(self, count, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.count = count

    def reset(self):
        self.t = 0
        u = torch.rand(self.count, 4, generator=self.gen) * 2 - 1
        self.s = u * torch.tensor([1.5, 0.2, 0.2, 0.1])
        return self.s.clone()

    def step(self, a):
        x, v, th, om = self.s.unbind(1)
        acc = 3.0 * a.squeeze(1)
        v = 0.98 * v + self.dt * acc
        om = 0.98 * om + self.dt * (-4.0 * torch.sin(th) - acc * torch.cos(th))
        x = (x + self.dt * v).clamp(-3, 3)
        th = th + self.dt * om
        self.s = torch.stack([x, v, th, om], 1)
        self.t += 1
        load = x + 0.5 * torch.sin(th)
        reward = (
            torch.exp(-2 * load.abs()) - 0.1 * th.square() - 0.02 * a.squeeze(1) ** 2
        )
        return self.s.clone(), reward, self.t >= self.horizon


class ReplayBuffer:
    def __init__(self, capacity):
        self.data = torch.empty(capacity, 4 + 1 + 1 + 4)
        self.at = self.size = 0

    def add(self, s, a, r, s2):
        rows = torch.cat([s, a, r[:, None], s2], 1)
        where = (self.at + torch.arange(len(rows))) % len(self.data)
        self.data[where] = rows
        self.at = (self.at + len(rows)) % len(self.data)
        self.size = min(self.size + len(rows), len(self.data))

    def sample(self, n):
        rows = self.data[torch.randint(0, self.size, (n,))]
        return rows[:, :4], rows[:, 4:5], rows[:, 5], rows[:, 6:]


def mlp(inputs, outputs, width=64):
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(4, 2)

    def forward(self, s):
        mean, log_std = self.net(s).chunk(2, -1)
        log_std = torch.tanh(log_std)
        return mean, LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)

    def sample(self, s):
        mean, log_std = self(s)
        normal = torch.distributions.Normal(mean, log_std.exp())
        u = normal.rsample()
        # log of 1 - tanh(u)^2, in a form that does not overflow
        squash = 2 * (math.log(2) - u - F.softplus(-2 * u))
        return torch.tanh(u), (normal.log_prob(u) - squash).squeeze(-1)


class Critics(nn.Module):
    def __init__(self, count=3):
        super().__init__()
        self.members = nn.ModuleList(mlp(5, 1) for _ in range(count))

    def forward(self, s, a):
        x = torch.cat([s, a], -1)
        return torch.stack([q(x).squeeze(-1) for q in self.members])


class SAC:
    gamma, tau, policy_frequency = 0.95, 0.02, 2

    def __init__(self):
        self.actor, self.critics = Actor(), Critics()
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
        self.target_entropy = -1.0
        self.q_optimizer = torch.optim.Adam(self.critics.parameters(), lr=2e-3)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=2e-3)
        self.a_optimizer = torch.optim.Adam([self.log_alpha], lr=5e-3)
        self.updates = 0

    def update(self, buffer, batch=128):
        self.updates += 1
        s, a, r, s2 = buffer.sample(batch)
        with torch.no_grad():
            a2, logp2 = self.actor.sample(s2)
            two = torch.randperm(3)[:2]
            q2 = self.target(s2, a2)[two].min(0).values
            y = r + self.gamma * (q2 - self.log_alpha.exp() * logp2)
        q_loss = (self.critics(s, a) - y).square().mean(1).sum()
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()

        if self.updates % self.policy_frequency == 0:
            for _ in range(self.policy_frequency):
                pi, logp = self.actor.sample(s)
                value = self.critics(s, pi).mean(0)
                actor_loss = (self.log_alpha.exp().detach() * logp - value).mean()
                # the critics collect gradients here too, dropped before their next step
                self.actor_optimizer.zero_grad()
                actor_loss.backward()
                self.actor_optimizer.step()

                gap = logp.detach() + self.target_entropy
                alpha_loss = -(self.log_alpha.exp() * gap).mean()
                self.a_optimizer.zero_grad()
                alpha_loss.backward()
                self.a_optimizer.step()

        with torch.no_grad():
            for p, t in zip(self.critics.parameters(), self.target.parameters()):
                t.lerp_(p, self.tau)
        return q_loss.item()


@torch.no_grad()
def evaluate(actor, seed):
    env = Crane(64, seed)
    s, total, done = env.reset(), 0.0, False
    while not done:
        s, r, done = env.step(torch.tanh(actor(s)[0]))
        total += r.mean().item()
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120, help="iterations")
    parser.add_argument("--updates", type=int, default=6, help="of the critics, each")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(77)
    env, agent, buffer = Crane(16, seed=1), SAC(), ReplayBuffer(20_000)
    s = env.reset()
    for _ in range(40):  # random actions to begin with
        a = torch.rand(16, 1) * 2 - 1
        s2, r, done = env.step(a)
        buffer.add(s, a, r, s2)
        s = env.reset() if done else s2
    for it in range(1, args.steps + 1):
        for _ in range(5):
            with torch.no_grad():
                a, _ = agent.actor.sample(s)
            s2, r, done = env.step(a)
            buffer.add(s, a, r, s2)
            s = env.reset() if done else s2
        losses = [agent.update(buffer) for _ in range(args.updates)]
        if it % 10 == 0 or it == 1:
            score = evaluate(agent.actor, seed=2)
            print(
                f"{it:4d} return {score:7.3f} q loss {sum(losses) / len(losses):.4f} "
                f"alpha {agent.log_alpha.exp().item():.3f}"
            )


if __name__ == "__main__":
    main()
