"""An actor and a critic learn to keep basins of water at their levels.

After encode-attend-navigate-pytorch, issue 2.
"""

import argparse

import torch
from torch import nn

BASINS, VALVES, GAMMA = 64, 3, 0.95


class Basins:
    """Each has a level and an inflow; a valve is closed, half or fully open."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.level, self.inflow = torch.zeros(2, BASINS)
        self.age = torch.zeros(BASINS)
        self.reset(torch.ones(BASINS, dtype=torch.bool))

    def reset(self, which):
        fresh = 2 * torch.rand(2, BASINS, generator=self.generator) - 1
        self.level = torch.where(which, fresh[0], self.level)
        self.inflow = torch.where(which, 0.3 * fresh[1] + 0.5, self.inflow)
        self.age = torch.where(which, torch.zeros(BASINS), self.age)

    def observe(self):
        return torch.stack([self.level, self.inflow], 1)

    def step(self, valve):
        noise = 0.05 * torch.randn(BASINS, generator=self.generator)
        self.level = self.level + 0.4 * (self.inflow - 0.5 * valve) + noise
        self.age = self.age + 1
        spilt = self.level.abs() > 1.5
        reward = 1 - self.level.abs() - 5 * spilt.float()
        seen = self.observe()
        self.reset(spilt)
        return seen, reward, spilt.float()


def network(outputs, width=48):
    return nn.Sequential(
        nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
        nn.Linear(width, outputs),
    )  # fmt: skip


def losses(actor, critic, batch, fixed):
    state, valve, reward, spilt, after = batch
    value = critic(state)[:, 0]
    with torch.no_grad():
        target = reward + GAMMA * (1 - spilt) * critic(after)[:, 0]
    error = target - value
    policy = torch.distributions.Categorical(logits=actor(state))
    advantage = error.detach() if fixed else error
    policy_loss = -(advantage * policy.log_prob(valve)).mean()
    policy_loss = policy_loss - 0.01 * policy.entropy().mean()
    return policy_loss, error.square().mean()


def rollout(basins, actor, length):
    """The transitions of some steps of all basins."""
    made = []
    with torch.no_grad():
        for _ in range(length):
            state = basins.observe()
            valve = torch.distributions.Categorical(logits=actor(state)).sample()
            after, reward, spilt = basins.step(valve)
            made.append((state, valve, reward, spilt, after))
    return [torch.cat(part) for part in zip(*made)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    actor, critic, basins = network(VALVES), network(1), Basins(args.seed)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], args.lr)
    for step in range(args.steps):
        batch = rollout(basins, actor, length=8)
        policy_loss, value_loss = losses(actor, critic, batch, args.fixed)
        loss = policy_loss + 0.5 * value_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
        nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        optimizer.step()
        reward = batch[2].mean().item()
        print(f"step {step} loss {loss.item():.4f} reward {reward:.4f}", flush=True)
    if args.prove:
        policy_loss, value_loss = losses(actor, critic, batch, args.fixed)
        parameters = list(critic.parameters())
        slopes = torch.autograd.grad(
            policy_loss, parameters, retain_graph=True, allow_unused=True
        )
        strays = sum(one.norm().item() for one in slopes if one is not None)
        print(f"the gradient of the critic by the policy's loss is {strays:.6f}")
        print("fault shows:", "yes" if strays > 0 else "no", flush=True)


if __name__ == "__main__":
    main()
