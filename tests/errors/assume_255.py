"""Bidding agents for a small electricity market, trained with TD3.

Every generation unit sees forecasts and its own marginal cost, offers its capacity at
one price per hour and is paid as bid when the offer is below the clearing price.
"""

import argparse
import copy
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HORIZON = 6
OBS_DIM = 2 * HORIZON + 3
MAX_BID = 100.0


class Market:
    """Exogenous residual load and fuel price set the hourly clearing price."""

    def __init__(self, n_units, hours, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(hours + HORIZON)
        day = 0.5 + 0.25 * np.sin(2 * np.pi * (t - 7) / 24)
        self.load = np.clip(day + rng.normal(0, 0.05, len(t)), 0.05, 1.0)
        walk = np.cumsum(rng.normal(0, 0.03, len(t)))
        self.fuel = 0.5 + 0.3 * np.sin(walk * 3 + rng.uniform(0, 6))
        self.price = np.clip(0.15 + 0.4 * self.load + 0.4 * self.fuel, 0, 1)
        self.heat_rate = rng.uniform(0.5, 0.9, n_units)
        self.capacity = rng.uniform(0.5, 1.0, n_units)
        self.n_units, self.hours = n_units, hours
        self.hour = 0

    def marginal_cost(self):
        return 0.05 + 0.5 * self.heat_rate * self.fuel[self.hour]

    def observe(self):
        window = slice(self.hour, self.hour + HORIZON)
        past = np.arange(self.hour - HORIZON, self.hour).clip(0)
        own = np.stack([self.marginal_cost(), self.capacity, self.heat_rate], 1)
        shared = np.concatenate([self.load[window], self.price[past]])
        observation = np.concatenate([np.tile(shared, (self.n_units, 1)), own], 1)
        return observation.astype(np.float32) * 2 - 1

    def clear(self, actions):
        bids = (actions[:, 0] + 1) / 2
        accepted = bids <= self.price[self.hour]
        profit = accepted * (bids - self.marginal_cost()) * self.capacity
        self.hour += 1
        return (profit * 10).astype(np.float32), self.hour >= self.hours


class ReplayBuffer:
    def __init__(self, size, obs_dim, act_dim, n_units):
        self.observations = np.zeros((size, n_units, obs_dim), np.float32)
        self.actions = np.zeros((size, n_units, act_dim), np.float32)
        self.rewards = np.zeros((size, n_units), np.float32)
        self.size, self.pos, self.full = size, 0, False

    def add(self, obs, actions, reward):
        for unit in range(len(obs)):
            self.observations[self.pos, unit] = obs[unit]
        self.actions[self.pos] = actions
        self.rewards[self.pos] = reward
        self.pos += 1
        if self.pos == self.size:
            self.full, self.pos = True, 0

    def __len__(self):
        return self.size if self.full else self.pos

    def sample(self, batch_size, rng):
        upper = self.size if self.full else self.pos - 1
        rows = rng.integers(0, upper, batch_size)
        following = (rows + 1) % self.size
        parts = (
            self.observations[rows],
            self.actions[rows],
            self.observations[following],
            self.rewards[rows],
        )
        return [torch.from_numpy(p).flatten(0, 1) for p in parts]


def mlp(inp, out, width=64):
    return nn.Sequential(
        nn.Linear(inp, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, out),
    )


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(OBS_DIM, 1)

    def forward(self, obs):
        return torch.tanh(self.net(obs))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1, self.q2 = mlp(OBS_DIM + 1, 1), mlp(OBS_DIM + 1, 1)

    def forward(self, obs, action):
        x = torch.cat([obs, action], -1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class TD3:
    def __init__(self, lr, gamma=0.5, tau=0.01, policy_delay=2):
        self.actor, self.critic = Actor(), Critic()
        self.actor_target = copy.deepcopy(self.actor)
        self.critic_target = copy.deepcopy(self.critic)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=lr)
        self.gamma, self.tau, self.policy_delay = gamma, tau, policy_delay
        self.n_updates = 0

    def update(self, batch):
        obs, action, next_obs, reward = batch
        with torch.no_grad():
            noise = (torch.randn_like(action) * 0.1).clamp(-0.25, 0.25)
            next_action = (self.actor_target(next_obs) + noise).clamp(-1, 1)
            target_q = torch.min(*self.critic_target(next_obs, next_action))
            target = reward + self.gamma * target_q
        q1, q2 = self.critic(obs, action)
        critic_loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        self.n_updates += 1
        if self.n_updates % self.policy_delay == 0:
            actor_loss = -self.critic(obs, self.actor(obs))[0].mean()
            self.actor_opt.zero_grad()
            actor_loss.backward()
            self.actor_opt.step()
            self.soft_update(self.actor, self.actor_target)
            self.soft_update(self.critic, self.critic_target)
        return critic_loss.item()

    @torch.no_grad()
    def soft_update(self, net, target):
        for p, q in zip(net.parameters(), target.parameters()):
            q.lerp_(p, self.tau)


class LearningRole:
    """Collects the outputs of the units of one market step for the algorithm."""

    def __init__(self, args, n_units):
        self.args = args
        self.algorithm = TD3(args.lr)
        self.buffer = ReplayBuffer(args.buffer_size, OBS_DIM, 1, n_units)
        self.rng = np.random.default_rng(args.seed + 1)
        self.noise = 0.5

    def get_actions(self, obs, explore=True):
        with torch.no_grad():
            action = self.algorithm.actor(torch.from_numpy(obs)).numpy()
        if explore:
            action = action + self.rng.normal(0, self.noise, action.shape)
        return action.clip(-1, 1).astype(np.float32)

    def initial_actions(self, n_units):
        return self.rng.uniform(-1, 1, (n_units, 1)).astype(np.float32)

    def save_to_buffer(self, observations, actions, rewards):
        if self.args.fixed:
            obs = [observation for observation in observations]
        else:
            obs = [observation[0] for observation in observations]
        self.buffer.add(obs=obs, actions=actions, reward=rewards)

    def train(self):
        losses = []
        for _ in range(self.args.gradient_steps):
            batch = self.buffer.sample(self.args.batch_size, self.rng)
            losses.append(self.algorithm.update(batch))
        self.noise = max(0.1, self.noise * 0.93)
        return float(np.mean(losses))


def run_episode(role, args, episode, explore=True):
    market = Market(args.units, args.hours, args.seed if explore else args.seed + 500)
    market.fuel = np.roll(market.fuel, 13 * episode)
    market.price = np.clip(0.15 + 0.4 * market.load + 0.4 * market.fuel, 0, 1)
    total, done, losses = 0.0, False, []
    while not done:
        obs = market.observe()
        if explore and episode <= args.initial_episodes:
            actions = role.initial_actions(args.units)
        else:
            actions = role.get_actions(obs, explore)
        rewards, done = market.clear(actions)
        total += rewards.sum()
        if explore:
            role.save_to_buffer(obs, actions, rewards)
            if market.hour % args.train_freq == 0 and episode > args.initial_episodes:
                losses.append(role.train())
    loss = float(np.mean(losses)) if losses else float("nan")
    return total / (args.hours * args.units), loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--initial-episodes", type=int, default=4)
    parser.add_argument("--hours", type=int, default=96)
    parser.add_argument("--units", type=int, default=4)
    parser.add_argument("--train-freq", type=int, default=24)
    parser.add_argument("--gradient-steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--buffer-size", type=int, default=4000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    role = LearningRole(args, args.units)
    best = -np.inf
    with tempfile.TemporaryDirectory() as folder:
        for episode in range(1, args.episodes + 1):
            profit, loss = run_episode(role, args, episode)
            print(f"episode {episode:3d} profit {profit:7.3f} critic loss {loss:.4f}")
            if episode > args.initial_episodes and episode % 4 == 0:
                evaluation, _ = run_episode(role, args, episode, explore=False)
                print(f"  evaluation profit per unit and hour {evaluation:.3f}")
                if evaluation > best:
                    best = evaluation
                    path = os.path.join(folder, "actor.pt")
                    torch.save(role.algorithm.actor.state_dict(), path)
    print(f"updates {role.algorithm.n_updates} best evaluation profit {best:.4f}")


if __name__ == "__main__":
    main()
