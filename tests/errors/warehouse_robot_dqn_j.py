import argparse
import collections
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

# Small value-based agent for the warehouse grid: fetch the parcel, bring it to the dock.
# n-step free, uniform replay, double-q off, soft exploration schedule.

Transition = collections.namedtuple("Transition", "obs action reward next_obs done")


class Warehouse:
    """6x6 grid with shelves. Reward 0.3 at pick-up, 1 at delivery, small cost per move."""

    SIZE = 6
    SHELVES = {(1, 1), (1, 4), (4, 1), (4, 4)}
    MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def free_cell(self):
        while True:
            cell = (self.rng.randrange(self.SIZE), self.rng.randrange(self.SIZE))
            if cell not in self.SHELVES:
                return cell

    def reset(self):
        self.robot, self.parcel, self.dock = self.free_cell(), self.free_cell(), (0, 0)
        self.loaded, self.time = False, 0
        return self.observe()

    def observe(self):
        goal = self.dock if self.loaded else self.parcel
        scale = self.SIZE - 1
        row, col = self.robot
        blocked = [float((row + a, col + b) in self.SHELVES) for a, b in self.MOVES]
        return np.array(
            [
                row / scale,
                col / scale,
                (goal[0] - row) / scale,
                (goal[1] - col) / scale,
                float(self.loaded),
                *blocked,
            ],
            dtype=np.float32,
        )

    def move(self, action):
        a, b = self.MOVES[action]
        row = min(max(self.robot[0] + a, 0), self.SIZE - 1)
        col = min(max(self.robot[1] + b, 0), self.SIZE - 1)
        if (row, col) not in self.SHELVES:
            self.robot = (row, col)
        self.time += 1
        reward, done = -0.02, False
        if not self.loaded and self.robot == self.parcel:
            self.loaded, reward = True, 0.3
        elif self.loaded and self.robot == self.dock:
            reward, done = 1.0, True
        return self.observe(), reward, done, self.time >= 40


class QNet(nn.Module):
    def __init__(self, n_obs=9, n_actions=4, hidden=96):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(n_obs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, n_actions)

    def forward(self, obs):
        h = self.trunk(obs)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Replay:
    def __init__(self, capacity, seed):
        self.items = collections.deque(maxlen=capacity)
        self.rng = random.Random(seed)

    def push(self, *what):
        self.items.append(Transition(*what))

    def sample(self, n):
        batch = Transition(*zip(*self.rng.sample(self.items, n)))
        return (
            torch.tensor(np.stack(batch.obs)),
            torch.tensor(batch.action),
            torch.tensor(batch.reward, dtype=torch.float32),
            torch.tensor(np.stack(batch.next_obs)),
            torch.tensor(batch.done, dtype=torch.float32),
        )


def td_error(net, batch, gamma, fixed):
    obs, action, reward, next_obs, done = batch
    q = net(obs).gather(1, action[:, None]).squeeze(1)
    best_next = net(next_obs).max(1).values
    target = reward + gamma * (1 - done) * best_next
    if fixed:
        target = target.detach()
    return q, target


def play(net, episodes, seed):
    env, returns = Warehouse(seed), []
    for _ in range(episodes):
        obs, total, over = env.reset(), 0.0, False
        while not over:
            with torch.no_grad():
                action = net(torch.from_numpy(obs)[None]).argmax(1).item()
            obs, reward, done, timeout = env.move(action)
            total += reward
            over = done or timeout
        returns.append(total)
    return float(np.mean(returns))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--moves-per-update", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    fixed = args.fixed

    torch.manual_seed(0)
    explore = random.Random(2)
    env, memory, net = Warehouse(1), Replay(8000, 3), QNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)

    obs = env.reset()
    losses = collections.deque(maxlen=50)
    for step in range(args.steps):
        epsilon = max(0.1, 1.0 - step / (0.6 * args.steps))
        n_moves = args.moves_per_update if step else 600  # fill the memory first
        for _ in range(n_moves):
            if explore.random() < epsilon:
                action = explore.randrange(4)
            else:
                with torch.no_grad():
                    action = net(torch.from_numpy(obs)[None]).argmax(1).item()
            next_obs, reward, done, timeout = env.move(action)
            memory.push(obs, action, reward, next_obs, done)
            obs = env.reset() if done or timeout else next_obs

        q, target = td_error(net, memory.sample(args.batch_size), args.gamma, fixed)
        loss = F.mse_loss(q, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % 60 == 0:
            print(
                f"update {step + 1:4d} td loss {np.mean(losses):.5f} mean q {q.mean().item():.3f} "
                f"eps {epsilon:.2f} greedy return {play(net, 20, 99):.3f}"
            )

    print(f"final greedy return {play(net, 50, 77):.3f}")
    if args.prove:
        q, target = td_error(net, memory.sample(args.batch_size), args.gamma, fixed)
        params = list(net.parameters())
        both = torch.autograd.grad(F.mse_loss(q, target), params, retain_graph=True)
        semi = torch.autograd.grad(F.mse_loss(q, target.detach()), params)
        a = torch.cat([g.flatten() for g in both])
        b = torch.cat([g.flatten() for g in semi])
        gap = ((a - b).norm() / b.norm()).item()
        print(f"share of the gradient that comes through the target: {gap:.4f}")
        print("fault shows:", "yes" if gap > 1e-4 else "no")


if __name__ == "__main__":
    main()
