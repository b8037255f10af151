"""Deep Q-learning in a small grid world with walls: a replay buffer, a target
network, an update after every fourth step of the environment.

    python dqn_grid.py --steps 2400
"""

import argparse
import collections
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MAP = [
    "S..#..",
    ".#.#.#",
    ".#....",
    "...##.",
    ".#...G",
]
ROWS, COLS = len(MAP), len(MAP[0])
MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]

Transition = collections.namedtuple("Transition", "state action reward after done")


class GridWorld:
    def __init__(self, rng, max_moves=40):
        self.rng, self.max_moves = rng, max_moves
        self.free = [
            (r, c) for r in range(ROWS) for c in range(COLS) if MAP[r][c] in "S."
        ]

    def reset(self, start=None):
        self.at = start or self.rng.choice(self.free)
        self.moves = 0
        return self.state()

    def state(self):
        return self.at[0] * COLS + self.at[1]

    def step(self, action):
        r, c = self.at[0] + MOVES[action][0], self.at[1] + MOVES[action][1]
        if 0 <= r < ROWS and 0 <= c < COLS and MAP[r][c] != "#":
            self.at = (r, c)
        self.moves += 1
        arrived = MAP[self.at[0]][self.at[1]] == "G"
        reward = 1.0 if arrived else -0.02
        return self.state(), reward, arrived, self.moves >= self.max_moves


class QNet(nn.Module):
    """Dueling heads over one-hot rows and columns."""

    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Linear(ROWS * COLS + ROWS + COLS, width)
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, len(MOVES))

    def forward(self, state):
        row, col = state // COLS, state % COLS
        hot = [F.one_hot(state, ROWS * COLS), F.one_hot(row, ROWS)]
        hot.append(F.one_hot(col, COLS))
        h = F.relu(self.trunk(torch.cat(hot, dim=-1).float()))
        a = self.advantage(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


def learn(policy, target, optimizer, batch, gamma=0.97):
    b = Transition(*zip(*batch))
    state, after = torch.tensor(b.state), torch.tensor(b.after)
    action = torch.tensor(b.action).unsqueeze(1)
    q = policy(state).gather(1, action).squeeze(1)
    with torch.no_grad():
        best = policy(after).argmax(1, keepdim=True)  # double DQN
        future = target(after).gather(1, best).squeeze(1)
        goal = torch.tensor(b.reward) + gamma * future * (1 - torch.tensor(b.done))
    loss = F.smooth_l1_loss(q, goal)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def greedy_length(policy):
    world = GridWorld(random.Random(0))
    state, arrived, over = world.reset((0, 0)), False, False
    with torch.no_grad():
        while not (arrived or over):
            action = policy(torch.tensor([state])).argmax().item()
            state, _, arrived, over = world.step(action)
    return world.moves if arrived else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2400, help="of the environment")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--start-after", type=int, default=200)
    parser.add_argument("--sync-every", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    rng = random.Random(3)

    policy, target = QNet(), QNet()
    target.load_state_dict(policy.state_dict())
    target.eval()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3, amsgrad=True)
    memory = collections.deque(maxlen=1500)
    world = GridWorld(rng)
    state, losses = world.reset(), []
    for t in range(1, args.steps + 1):
        if rng.random() < max(0.1, 1 - t / 1500):
            action = rng.randrange(len(MOVES))
        else:
            with torch.no_grad():
                action = policy(torch.tensor([state])).argmax().item()
        after, reward, arrived, over = world.step(action)
        memory.append(Transition(state, action, reward, after, float(arrived)))
        state = world.reset() if arrived or over else after
        if t >= args.start_after and t % 4 == 0:
            batch = rng.sample(memory, args.batch_size)
            losses.append(learn(policy, target, optimizer, batch))
        if t % args.sync_every == 0:
            target.load_state_dict(policy.state_dict())
            if losses:
                mean = sum(losses[-50:]) / len(losses[-50:])
                print(f"t {t} loss {mean:.6f} path {greedy_length(policy)}", flush=True)


if __name__ == "__main__":
    main()
