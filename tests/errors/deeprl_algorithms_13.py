"""PPO on a small grid world, clip objective + GAE. My cleaned up version of the lab code."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


class GridWorld:
    """size x size grid, start in the upper left corner, goal in the lower right, a few pits."""

    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def __init__(self, size=6, max_len=40, seed=0):
        self.size, self.max_len = size, max_len
        self.rng = np.random.RandomState(seed)
        self.pits = {(1, 3), (3, 1), (4, 4)}
        self.goal = (size - 1, size - 1)

    def _obs(self):
        obs = np.zeros(self.size * 2, dtype=np.float32)
        obs[self.pos[0]] = 1.0
        obs[self.size + self.pos[1]] = 1.0
        return obs

    def reset(self):
        self.pos, self.t = (0, self.rng.randint(2)), 0
        return self._obs()

    def step(self, action):
        if self.rng.rand() < 0.05:
            action = self.rng.randint(4)
        dr, dc = self.moves[action]
        r = min(max(self.pos[0] + dr, 0), self.size - 1)
        c = min(max(self.pos[1] + dc, 0), self.size - 1)
        self.pos, self.t = (r, c), self.t + 1
        if self.pos == self.goal:
            return self._obs(), 10.0, True
        if self.pos in self.pits:
            return self._obs(), -1.0, True
        return self._obs(), -0.1, self.t >= self.max_len


class Policy(nn.Module):
    def __init__(self, dim_state, dim_action, hidden=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(dim_state, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, dim_action),
        )

    def dist(self, states):
        return Categorical(logits=self.body(states))

    def get_log_prob(self, states, actions):
        return self.dist(states).log_prob(actions)


class Value(nn.Module):
    def __init__(self, dim_state, hidden=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(dim_state, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, states):
        return self.body(states)


def estimate_advantages(rewards, masks, values, gamma, tau):
    """all inputs and outputs are [batch, 1]"""
    deltas = torch.zeros_like(rewards)
    advantages = torch.zeros_like(rewards)
    prev_value, prev_adv = 0.0, 0.0
    for i in reversed(range(rewards.size(0))):
        deltas[i] = rewards[i] + gamma * prev_value * masks[i] - values[i]
        advantages[i] = deltas[i] + gamma * tau * prev_adv * masks[i]
        prev_value, prev_adv = values[i, 0], advantages[i, 0]
    returns = values + advantages
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return advantages, returns


class PPO:
    def __init__(self, args):
        self.args = args
        self.env = GridWorld(seed=args.seed)
        self.policy = Policy(12, 4)
        self.value = Value(12)
        self.optim = torch.optim.Adam(
            [
                {"params": self.policy.parameters(), "lr": 3e-3},
                {"params": self.value.parameters(), "lr": 2e-3},
            ]
        )

    def sample(self, n):
        states, actions, rewards, masks, ep, ep_r = [], [], [], [], [], 0.0
        s = self.env.reset()
        while len(states) < n:
            with torch.no_grad():
                a = torch.multinomial(
                    self.policy.body(torch.from_numpy(s)).softmax(-1), 1
                ).item()
            s2, r, done = self.env.step(a)
            states.append(s), actions.append(a), rewards.append(r), masks.append(
                0.0 if done else 1.0
            )
            ep_r += r
            if done:
                ep.append(ep_r)
                ep_r = 0.0
                s2 = self.env.reset()
            s = s2
        return (
            torch.from_numpy(np.stack(states)),
            torch.tensor(actions),
            torch.tensor(rewards).unsqueeze(1),
            torch.tensor(masks).unsqueeze(1),
            float(np.mean(ep)) if ep else ep_r,
        )

    def surrogate(self, states, actions, advantages, old_log_probs):
        log_probs = self.policy.get_log_prob(states, actions)
        ratio = torch.exp(log_probs - old_log_probs)
        if self.args.fixed:
            advantages = advantages.reshape(-1)
        surr1 = ratio * advantages
        surr2 = torch.clamp(ratio, 1 - 0.2, 1 + 0.2) * advantages
        return -torch.min(surr1, surr2).mean()

    def ppo_step(self, states, actions, returns, advantages, old_log_probs):
        policy_loss = self.surrogate(states, actions, advantages, old_log_probs)
        value_loss = F.mse_loss(self.value(states), returns)
        entropy = self.policy.dist(states).entropy().mean()
        loss = policy_loss + 0.5 * value_loss - 0.02 * entropy
        self.optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
        self.optim.step()
        return policy_loss.item(), value_loss.item()

    def learn(self):
        done_steps, it = 0, 0
        while done_steps < self.args.steps:
            states, actions, rewards, masks, avg_r = self.sample(200)
            with torch.no_grad():
                values = self.value(states)
                old = self.policy.get_log_prob(states, actions)
            adv, returns = estimate_advantages(rewards, masks, values, 0.99, 0.95)
            for _ in range(min(8, self.args.steps - done_steps)):
                pl, vl = self.ppo_step(states, actions, returns, adv, old)
                done_steps += 1
            it += 1
            if it % 5 == 0:
                print(
                    f"Iter: {it}, num steps: {done_steps}, average reward: {avg_r:.4f}, "
                    f"policy loss {pl:.4f}, value loss {vl:.4f}"
                )
            self.last = (states, actions, adv, old)
        return avg_r


def grad_of(model, loss):
    return torch.cat(
        [g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    agent = PPO(args)
    print("last average reward", round(agent.learn(), 3))
    if args.prove:
        states, actions, adv, _ = agent.last
        old = agent.policy.get_log_prob(states, actions).detach()
        used = grad_of(agent.policy, agent.surrogate(states, actions, adv, old))
        pairwise = grad_of(
            agent.policy,
            -(agent.policy.get_log_prob(states, actions) * adv[:, 0]).mean(),
        )
        rel = ((used - pairwise).norm() / pairwise.norm()).item()
        print(f"policy gradient off by {rel:.3f}")
        print("fault shows:", "yes" if rel > 0.3 else "no")
