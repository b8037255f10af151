"""Advantage actor-critic for a robot that fetches a box in a small warehouse grid."""
import argparse
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical

GAMMA = 0.95
GRID = 5
MAX_MOVES = 20
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


class Warehouse:
    """The robot starts somewhere, the box stands somewhere else, shelves block two cells."""

    shelves = {(1, 1), (3, 2)}

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def free_cell(self):
        while True:
            cell = (self.rng.randrange(GRID), self.rng.randrange(GRID))
            if cell not in self.shelves:
                return cell

    def reset(self):
        self.robot, self.box, self.moves = self.free_cell(), self.free_cell(), 0
        while self.box == self.robot:
            self.box = self.free_cell()
        return self.observe()

    def observe(self):
        r, b = self.robot, self.box
        here = [0.0] * GRID * 2
        here[r[0]] = here[GRID + r[1]] = 1.0
        delta = [(b[0] - r[0]) / GRID, (b[1] - r[1]) / GRID]
        return np.array(
            here + delta + [np.sign(delta[0]), np.sign(delta[1])], dtype=np.float32
        )

    def step(self, action):
        self.moves += 1
        target = (self.robot[0] + MOVES[action][0], self.robot[1] + MOVES[action][1])
        inside = 0 <= target[0] < GRID and 0 <= target[1] < GRID
        if inside and target not in self.shelves:
            self.robot = target
        if self.robot == self.box:
            return self.observe(), 1.0, True
        return self.observe(), -0.02, self.moves >= MAX_MOVES


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_actions, hidden=64):
        super().__init__()
        self.affine = nn.Linear(n_obs, hidden)
        self.action_head = nn.Linear(hidden, n_actions)
        self.value_head = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = torch.relu(self.affine(obs))
        return Categorical(logits=self.action_head(h)), self.value_head(h).squeeze(-1)


def play(env, model):
    """One episode; returns the log-probabilities, values and discounted returns."""
    obs, done = env.reset(), False
    log_probs, values, rewards = [], [], []
    while not done:
        dist, value = model(torch.from_numpy(obs))
        action = dist.sample()
        obs, reward, done = env.step(action.item())
        log_probs.append(dist.log_prob(action))
        values.append(value)
        rewards.append(reward)
    returns, total = [], 0.0
    for r in reversed(rewards):
        total = r + GAMMA * total
        returns.insert(0, total)
    return (
        torch.stack(log_probs),
        torch.stack(values),
        torch.tensor(returns),
        sum(rewards),
    )


def losses(episodes, args):
    policy_terms, value_terms = [], []
    for log_probs, values, returns, _ in episodes:
        advantage = returns - values.detach()
        policy_terms.append((-log_probs * advantage).mean())
        value_terms.append(nn.functional.smooth_l1_loss(values, returns))
    if args.fixed:
        policy_loss = torch.stack(policy_terms).mean()
    else:
        policy_loss = torch.tensor(policy_terms, requires_grad=True).mean()
    value_loss = torch.stack(value_terms).mean()
    return policy_loss, value_loss


def train(model, env, args):
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    recent = deque(maxlen=100)
    for update in range(args.steps):
        episodes = [play(env, model) for _ in range(args.episodes)]
        recent.extend(e[3] for e in episodes)
        policy_loss, value_loss = losses(episodes, args)
        loss = policy_loss + 0.5 * value_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (update + 1) % 25 == 0:
            print(
                f"update {update + 1}\tpolicy {policy_loss.item():+.4f}\tvalue {value_loss.item():.4f}"
                f"\treward (last 100) {np.mean(recent):+.3f}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--episodes", type=int, default=4, help="episodes per update")
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    env = Warehouse(args.seed)
    net = ActorCritic(GRID * 2 + 4, len(MOVES))
    initial_actor = net.action_head.weight.detach().clone()
    train(net, env, args)
    if args.prove:
        moved = (net.action_head.weight.detach() - initial_actor).abs().max().item()
        print("largest weight change of the action head:", moved)
        print("fault shows:", "yes" if moved == 0.0 else "no")
