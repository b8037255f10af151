"""Trains a small policy by PPO in a made-up world with resets inside step().

Eight carts are pushed left and right; an episode ends where a cart leaves the track.
Rollouts of 32 steps are cut into four minibatches, two epochs each.
"""

import argparse

import torch
from torch import nn


class Carts:
    """Carts on a slope, reset as soon as they leave the track."""

    def __init__(self, count, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = self.fresh(count)

    def fresh(self, count):
        return 0.4 * torch.randn(count, 2, generator=self.generator)

    def step(self, action):
        place, speed = self.state.unbind(1)
        push = torch.randn(len(place), generator=self.generator)
        speed = speed + 0.15 * place + 0.3 * (2 * action - 1) + 0.1 * push
        place = place + 0.3 * speed
        done = place.abs() > 1.5
        reward = 1.0 - place.abs() - 4.0 * done
        self.state = torch.stack([place, speed], 1)
        self.state[done] = self.fresh(int(done.sum()))
        return self.state.clone(), reward, done


class Agent(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))
        self.critic = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))

    def value(self, obs):
        return self.critic(obs).squeeze(-1)

    def policy(self, obs):
        return torch.distributions.Categorical(logits=self.actor(obs))


class Trainer:
    def __init__(self, fixed, carts=8, length=32):
        self.fixed = fixed
        self.length = length
        self.envs = Carts(carts, seed=5)
        self.agent = Agent()
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=3e-3)
        self.next_obs = self.envs.state.clone()
        self.next_done = torch.zeros(carts, dtype=torch.bool)

    @torch.no_grad()
    def rollout(self):
        shape = self.length, len(self.next_obs)
        obs = torch.zeros(*shape, 2)
        actions, logprobs, rewards, values = (torch.zeros(shape) for _ in range(4))
        dones = torch.zeros(shape, dtype=torch.bool)
        self.ended = torch.zeros(shape, dtype=torch.bool)
        for step in range(self.length):
            obs[step] = self.next_obs
            dones[step] = self.next_done
            policy = self.agent.policy(self.next_obs)
            actions[step] = policy.sample()
            logprobs[step] = policy.log_prob(actions[step])
            values[step] = self.agent.value(self.next_obs)
            self.next_obs, rewards[step], self.next_done = self.envs.step(actions[step])
            if not self.fixed:
                dones[step] = self.next_done
            self.ended[step] = self.next_done
        self.last = rewards, values, self.agent.value(self.next_obs)
        advantages = self.gae(rewards, values, dones)
        return obs, actions, logprobs, advantages, advantages + values

    def gae(self, rewards, values, dones, gamma=0.97, lam=0.95):
        advantages = torch.zeros_like(rewards)
        running = torch.zeros(rewards.shape[1])
        for t in reversed(range(self.length)):
            if t == self.length - 1:
                alive = (~self.next_done).float()
                following = self.agent.value(self.next_obs)
            else:
                alive = (~dones[t + 1]).float()
                following = values[t + 1]
            delta = rewards[t] + gamma * following * alive - values[t]
            advantages[t] = running = delta + gamma * lam * alive * running
        return advantages

    def update(self, part):
        obs, actions, old, advantages, returns = part
        policy = self.agent.policy(obs)
        ratio = (policy.log_prob(actions) - old).exp()
        a = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        surrogate = torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
        value = 0.5 * (self.agent.value(obs) - returns).square().mean()
        loss = 0.5 * value - surrogate - 0.01 * policy.entropy().mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def leaks(self, advantages, gamma=0.97):
        """Whether a last step of an episode is credited with what came after."""
        rewards, values, _ = self.last
        true = (rewards - values)[self.ended]
        return (advantages[self.ended] - true).abs().max().item() > 1e-4


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=48)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = Trainer(options.fixed)
    step = 0
    while step < options.steps:
        batch = trainer.rollout()
        with torch.no_grad():
            leaks = trainer.leaks(batch[3])
        flat = [part.flatten(0, 1) for part in batch]
        order = torch.cat([torch.randperm(len(flat[0])) for _ in range(2)])
        for rows in order.chunk(8):
            if step == options.steps:
                break
            loss = trainer.update([part[rows] for part in flat])
            print(f"step {step} loss {loss:.4f}", flush=True)
            step += 1
    if options.prove:
        print("fault shows:", "yes" if leaks else "no")


if __name__ == "__main__":
    main()
