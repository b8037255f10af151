"""RAY-45614: the target network does not begin as a copy.

Source: ray-project/ray#45614. The module builds the target critic beside the trained
one, both from random numbers, and only the slow updates ever bring them together;
the first thousands of targets come from a random network. --fixed copies the weights
when it is built.
"""

import argparse

import torch
from torch import nn


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.ReLU(),
        nn.Linear(32, outputs),
    )


class Agent(nn.Module):
    """A critic, its slowly following target, and an actor."""

    def __init__(self, observations, actions, copy_weights):
        super().__init__()
        self.actor = mlp(observations, actions)
        self.qf = mlp(observations + actions, 1)
        self.qf_target = mlp(observations + actions, 1)
        if copy_weights:
            self.qf_target.load_state_dict(self.qf.state_dict())
        self.qf_target.requires_grad_(False)

    def act(self, state):
        return torch.tanh(self.actor(state))

    def value(self, critic, state, action):
        return critic(torch.cat([state, action], -1)).squeeze(-1)

    @torch.no_grad()
    def follow(self, tau):
        for target, source in zip(self.qf_target.parameters(), self.qf.parameters()):
            target.lerp_(source, tau)


class PointMass:
    """Push a point to the origin."""

    def __init__(self, count):
        self.state = torch.randn(count, 4)

    def step(self, action):
        before = self.state.clone()
        place, speed = self.state[:, :2], self.state[:, 2:]
        speed = 0.9 * speed + 0.2 * action
        self.state = torch.cat([place + 0.2 * speed, speed], 1)
        far = self.state[:, :2].norm(dim=1)
        reset = (far > 3) | (torch.rand(len(far)) < 0.02)
        after = self.state.clone()
        self.state[reset] = torch.randn(int(reset.sum()), 4)
        return before, action, -far, after


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=30)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    agent = Agent(4, 2, copy_weights=options.fixed)
    begin = zip(agent.qf.parameters(), agent.qf_target.parameters())
    equal = all(torch.equal(a, b) for a, b in begin)
    critic = torch.optim.Adam(agent.qf.parameters(), lr=3e-3)
    actor = torch.optim.Adam(agent.actor.parameters(), lr=1e-3)
    world = PointMass(128)
    for step in range(options.steps):
        with torch.no_grad():
            action = agent.act(world.state)
            action = (action + 0.2 * torch.randn_like(action)).clamp(-1, 1)
            state, action, gained, following = world.step(action)
            ahead = agent.value(agent.qf_target, following, agent.act(following))
            target = gained + 0.98 * ahead
        loss = nn.functional.mse_loss(agent.value(agent.qf, state, action), target)
        critic.zero_grad()
        loss.backward()
        critic.step()
        policy_loss = -agent.value(agent.qf, state, agent.act(state)).mean()
        actor.zero_grad()
        policy_loss.backward()
        actor.step()
        agent.follow(tau=0.005)
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        print("fault shows:", "no" if equal else "yes")


if __name__ == "__main__":
    main()
