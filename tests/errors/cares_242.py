"""DDPG with batch-normalised networks for keeping a mixing tank at its setpoints."""
import argparse
import copy
import random
import tempfile
from collections import deque
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class MixingTank:
    """Level (m) and temperature (deg C); valves for hot and cold water in [-1, 1]."""

    observation_size = 4
    action_size = 2

    def __init__(self, seed, horizon=60):
        self.rng = np.random.default_rng(seed)
        self.horizon = horizon

    def reset(self):
        self.t = 0
        self.level = self.rng.uniform(0.5, 3.5)
        self.temp = self.rng.uniform(2.0, 6.0)
        self.want = np.array([self.rng.uniform(1.5, 2.5), self.rng.uniform(3.0, 5.0)])
        return self._observe()

    def _observe(self):
        return np.array([self.level, self.temp, *self.want], dtype=np.float32)

    def step(self, action):
        hot, cold = 0.12 * (np.clip(action, -1, 1) + 1)
        drain = 0.09 * np.sqrt(max(self.level, 0.0)) + self.rng.normal(0, 0.005)
        volume = max(self.level, 0.05)
        self.temp += (hot * (8.0 - self.temp) + cold * (1.0 - self.temp)) / volume
        self.level = float(np.clip(self.level + hot + cold - drain, 0.05, 4.0))
        self.temp = float(np.clip(self.temp, 1.0, 8.0))
        miss = abs(self.level - self.want[0]) + 0.5 * abs(self.temp - self.want[1])
        self.t += 1
        return self._observe(), 1.0 - miss, False, self.t >= self.horizon


class MemoryBuffer:
    def __init__(self, capacity, seed):
        self.buffer = deque(maxlen=capacity)
        self.rng = random.Random(seed)

    def add(self, *experience):
        self.buffer.append(experience)

    def __len__(self):
        return len(self.buffer)

    def sample_uniform(self, n):
        columns = zip(*self.rng.sample(self.buffer, n))
        return tuple(torch.as_tensor(np.array(c), dtype=torch.float32) for c in columns)


class Actor(nn.Module):
    def __init__(self, obs, act, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm1d(obs),
            nn.Linear(obs, hidden),
            nn.ReLU(),
            nn.BatchNorm1d(hidden),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, act),
            nn.Tanh(),
        )

    def forward(self, state):
        return self.net(state)


class Critic(nn.Module):
    def __init__(self, obs, act, hidden=64):
        super().__init__()
        self.state_norm = nn.BatchNorm1d(obs)
        self.state_in = nn.Linear(obs, hidden)
        self.hidden_norm = nn.BatchNorm1d(hidden)
        self.joint = nn.Linear(hidden + act, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, state, action):
        x = self.hidden_norm(F.relu(self.state_in(self.state_norm(state))))
        x = F.relu(self.joint(torch.cat([x, action], dim=1)))
        return self.out(x).squeeze(1)


@torch.no_grad()
def soft_update_params(net, target_net, tau):
    for param, target in zip(net.parameters(), target_net.parameters()):
        target.lerp_(param, tau)


@torch.no_grad()
def soft_update_buffers(net, target_net, tau):
    for value, target in zip(net.buffers(), target_net.buffers()):
        if target.is_floating_point():
            target.lerp_(value, tau)
        else:
            target.copy_(value)


class DDPG:
    def __init__(self, actor, critic, config):
        self.actor, self.critic, self.config = actor, critic, config
        self.target_actor = copy.deepcopy(actor).eval().requires_grad_(False)
        self.target_critic = copy.deepcopy(critic).eval().requires_grad_(False)
        self.pairs = [(actor, self.target_actor), (critic, self.target_critic)]
        self.actor_opt = torch.optim.Adam(actor.parameters(), lr=config.actor_lr)
        self.critic_opt = torch.optim.Adam(critic.parameters(), lr=config.critic_lr)

    @torch.no_grad()
    def select_action(self, state, noise_scale, rng):
        self.actor.eval()
        action = self.actor(torch.from_numpy(state)[None])[0].numpy()
        action = action + rng.normal(0, noise_scale, action.shape)
        return np.clip(action, -1, 1).astype(np.float32)

    def _update_critic(self, states, actions, rewards, next_states, dones):
        with torch.no_grad():
            next_actions = self.target_actor(next_states)
            next_q = self.target_critic(next_states, next_actions)
            q_target = rewards + self.config.gamma * (1 - dones) * next_q
        self.critic.train()
        critic_loss = F.mse_loss(self.critic(states, actions), q_target)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        return critic_loss.item()

    def _update_actor(self, states):
        self.critic.eval()
        self.actor.train()
        actor_loss = -self.critic(states, self.actor(states)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        return actor_loss.item()

    def train_policy(self, batch):
        critic_loss = self._update_critic(*batch)
        actor_loss = self._update_actor(batch[0])
        tau = self.config.tau
        for net, target in self.pairs:
            soft_update_params(net, target, tau)
            if self.config.fixed:
                soft_update_buffers(net, target, tau)
        return critic_loss, actor_loss

    def save_models(self, directory):
        torch.save(self.actor.state_dict(), directory / "actor.pht")
        torch.save(self.critic.state_dict(), directory / "critic.pht")


def evaluate(agent, seed, episodes=5):
    env, rng = MixingTank(seed), np.random.default_rng(seed)
    returns = []
    for _ in range(episodes):
        state, total, over = env.reset(), 0.0, False
        while not over:
            action = agent.select_action(state, 0.0, rng)
            state, reward, terminated, truncated = env.step(action)
            total += reward
            over = terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def train_loop(agent, memory, config, directory):
    env, rng = MixingTank(config.seed), np.random.default_rng(config.seed)
    state, critic_losses = env.reset(), deque(maxlen=100)
    for step in range(config.exploration + config.steps):
        if step < config.exploration:
            action = rng.uniform(-1, 1, env.action_size).astype(np.float32)
        else:
            action = agent.select_action(state, config.noise, rng)
        next_state, reward, terminated, truncated = env.step(action)
        memory.add(state, action, reward, next_state, float(terminated))
        state = env.reset() if terminated or truncated else next_state
        if step < config.exploration:
            continue
        critic_loss, _ = agent.train_policy(memory.sample_uniform(config.batch_size))
        critic_losses.append(critic_loss)
        done = step - config.exploration + 1
        if done % config.eval_every == 0 or done == config.steps:
            score = evaluate(agent, config.seed + 1000)
            print(
                f"step {done:5d} | critic loss {np.mean(critic_losses):.4f} "
                f"| evaluation return {score:.2f}"
            )
            agent.save_models(directory)


@torch.no_grad()
def prove(agent, memory):
    """Statistics of the target networks against those of the trained ones."""
    gap = 0.0
    for net, target in agent.pairs:
        for a, b in zip(net.buffers(), target.buffers()):
            if a.is_floating_point():
                gap = max(gap, ((a - b).norm() / a.norm().clamp_min(1e-6)).item())
    states = memory.sample_uniform(min(256, len(memory)))[0]
    actions = agent.target_actor(states)
    agent.critic.eval()
    shift = (
        agent.target_critic(states, actions) - agent.critic(states, actions)
    ).mean()
    print(f"relative gap of running statistics {gap:.3f}, mean value shift {shift:.3f}")
    print("fault shows:", "yes" if gap > 0.3 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--exploration", type=int, default=400)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--gamma", type=float, default=0.85)
    parser.add_argument("--tau", type=float, default=0.05)
    parser.add_argument("--actor_lr", type=float, default=5e-4)
    parser.add_argument("--critic_lr", type=float, default=2e-3)
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--eval_every", type=int, default=200)
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    config = parser.parse_args()

    torch.manual_seed(config.seed)
    sizes = (MixingTank.observation_size, MixingTank.action_size)
    agent = DDPG(Actor(*sizes), Critic(*sizes), config)
    memory = MemoryBuffer(10000, config.seed)
    with tempfile.TemporaryDirectory() as directory:
        train_loop(agent, memory, config, Path(directory))
    if config.prove:
        prove(agent, memory)


if __name__ == "__main__":
    main()
