"""Deep Q-learning on a slippery grid with pits. One network, replay memory, epsilon-greedy."""
import argparse
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", "obs action reward next_obs terminated")


class SlipperyGrid:
    SIZE = 6
    PITS = {(1, 3), (2, 1), (3, 4), (4, 2)}
    GOAL = (5, 5)
    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, seed, slip=0.25, limit=40):
        self.rng = random.Random(seed)
        self.slip = slip
        self.limit = limit
        self.reset()

    def _encode(self):
        v = np.zeros(self.SIZE**2, dtype=np.float32)
        v[self.pos[0] * self.SIZE + self.pos[1]] = 1.0
        return v

    def reset(self):
        while True:
            self.pos = (self.rng.randrange(self.SIZE), self.rng.randrange(self.SIZE))
            if self.pos not in self.PITS and self.pos != self.GOAL:
                break
        self.t = 0
        return self._encode()

    def step(self, action):
        if self.rng.random() < self.slip:
            action = self.rng.randrange(4)
        dr, dc = self.MOVES[action]
        r = min(max(self.pos[0] + dr, 0), self.SIZE - 1)
        c = min(max(self.pos[1] + dc, 0), self.SIZE - 1)
        self.pos = (r, c)
        self.t += 1
        if self.pos == self.GOAL:
            return self._encode(), 1.0, True, False
        if self.pos in self.PITS:
            return self._encode(), -1.0, True, False
        return self._encode(), -0.02, False, self.t >= self.limit


class ReplayBuffer:
    def __init__(self, capacity, seed):
        self.data = deque(maxlen=capacity)
        self.rng = random.Random(seed)

    def add(self, *items):
        self.data.append(Transition(*items))

    def sample(self, n):
        rows = self.rng.sample(self.data, n)
        cols = Transition(*zip(*rows))
        return Transition(
            torch.from_numpy(np.stack(cols.obs)),
            torch.tensor(cols.action),
            torch.tensor(cols.reward),
            torch.from_numpy(np.stack(cols.next_obs)),
            torch.tensor(cols.terminated, dtype=torch.float32),
        )


class QNet(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(obs_dim, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_actions),
        )

    def forward(self, x):
        return self.layers(x)


def td_loss(q_net, batch, gamma, fixed):
    chosen = q_net(batch.obs).gather(1, batch.action[:, None]).squeeze(1)
    best_next = q_net(batch.next_obs).max(dim=1).values
    target = batch.reward + gamma * (1.0 - batch.terminated) * best_next
    if fixed:
        target = target.detach()
    return F.mse_loss(chosen, target)


def update_direction(q_net, batch, gamma):
    """Reference gradient on a batch."""
    with torch.no_grad():
        target = (
            batch.reward
            + gamma * (1.0 - batch.terminated) * q_net(batch.next_obs).max(dim=1).values
        )
    chosen = q_net(batch.obs).gather(1, batch.action[:, None]).squeeze(1)
    grads = torch.autograd.grad(F.mse_loss(chosen, target), list(q_net.parameters()))
    return torch.cat([g.flatten() for g in grads])


def play(q_net, seed, episodes, gamma):
    env = SlipperyGrid(seed)
    total = 0.0
    for _ in range(episodes):
        obs, scale = env.reset(), 1.0
        while True:
            with torch.no_grad():
                a = int(q_net(torch.from_numpy(obs)[None]).argmax())
            obs, r, term, trunc = env.step(a)
            total += scale * r
            scale *= gamma
            if term or trunc:
                break
    return total / episodes


# size: the whole run in one place, read from top to bottom
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=700, help="gradient updates")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument(
        "--every", type=int, default=4, help="environment steps per update"
    )
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    explore = random.Random(args.seed)
    env = SlipperyGrid(args.seed)
    memory = ReplayBuffer(4000, args.seed)
    q_net = QNet(SlipperyGrid.SIZE**2, 4)
    optimizer = torch.optim.Adam(q_net.parameters(), lr=args.lr)

    deviations, returns, ep_return = [], deque(maxlen=40), 0.0
    obs = env.reset()
    updates, frame = 0, 0
    while updates < args.steps:
        eps = max(0.1, 1.0 - updates / (0.6 * args.steps))
        if explore.random() < eps:
            action = explore.randrange(4)
        else:
            with torch.no_grad():
                action = int(q_net(torch.from_numpy(obs)[None]).argmax())
        nxt, reward, terminated, truncated = env.step(action)
        memory.add(obs, action, reward, nxt, terminated)
        ep_return += reward
        obs = nxt
        if terminated or truncated:
            returns.append(ep_return)
            ep_return = 0.0
            obs = env.reset()
        frame += 1
        if len(memory.data) < args.warmup or frame % args.every:
            continue

        batch = memory.sample(args.batch_size)
        loss = td_loss(q_net, batch, args.gamma, args.fixed)
        optimizer.zero_grad()
        loss.backward()
        if args.prove and updates % 20 == 0:
            got = torch.cat([p.grad.flatten() for p in q_net.parameters()])
            want = update_direction(q_net, batch, args.gamma)
            deviations.append(((got - want).norm() / want.norm()).item())
        optimizer.step()
        if updates % 100 == 0 or updates == args.steps - 1:
            print(
                f"update {updates:4d}  td loss {loss.item():.4f}  eps {eps:.2f}  "
                f"recent return {np.mean(returns) if returns else 0.0:.3f}"
            )
        updates += 1

    print(f"greedy discounted return: {play(q_net, 77, 150, args.gamma):.3f}")
    if args.prove:
        print(
            f"gradient against the reference, relative difference: "
            f"first {deviations[0]:.4f}, mean {np.mean(deviations):.4f}"
        )
        print("fault shows:", "yes" if np.mean(deviations) > 1e-3 else "no")


if __name__ == "__main__":
    main()
