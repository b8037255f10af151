"""Quantile-regression DQN with prioritized replay and n-step returns, exploring a cavern with slippery floor.

Habits: a sum tree draws the transitions, importance weights (annealed to full correction) multiply the
loss, priorities are written back after each update; a time limit is not a terminal state, so truncated
windows still bootstrap; each stored window carries its own discount; the target network is a hard copy
that is refreshed now and then; no gradient ever enters it.
"""
import argparse
import copy

import numpy as np
import torch
from torch import nn

SIDE, GAMMA, N_STEP, LIMIT = 4, 0.97, 3, 40
PITS = {(1, 1), (2, 3)}
GOAL = (3, 3)


class Cavern:
    """Four moves, 10 % slip to a random move; -1 and the end in a pit, +1 at the exit, -0.01 per move."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def observe(self):
        o = np.zeros(SIDE * SIDE, dtype=np.float32)
        o[self.at[0] * SIDE + self.at[1]] = 1
        return o

    def reset(self):
        self.at, self.t = (0, 0), 0
        return self.observe()

    def step(self, action):
        if self.rng.random() < 0.1:
            action = int(self.rng.integers(4))
        dr, dc = ((-1, 0), (1, 0), (0, -1), (0, 1))[action]
        self.at = (
            min(max(self.at[0] + dr, 0), SIDE - 1),
            min(max(self.at[1] + dc, 0), SIDE - 1),
        )
        self.t += 1
        terminated = self.at in PITS or self.at == GOAL
        reward = -1.0 if self.at in PITS else 1.0 if self.at == GOAL else -0.01
        return self.observe(), reward, terminated, self.t >= LIMIT and not terminated


class SumTree:
    def __init__(self, capacity):
        self.capacity, self.tree = capacity, np.zeros(2 * capacity)

    def set(self, idx, value):
        for i, v in zip(np.atleast_1d(idx), np.atleast_1d(value)):
            node = int(i) + self.capacity
            self.tree[node] = v
            while node > 1:
                node //= 2
                self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def draw(self, n, rng):
        """One draw in each of n equal strata of the total mass."""
        mass = (np.arange(n) + rng.random(n)) / n * self.tree[1]
        node = np.ones(n, dtype=np.int64)
        while node[0] < self.capacity:
            left = self.tree[2 * node]
            right = mass >= left
            mass = np.where(right, mass - left, mass)
            node = 2 * node + right
        return node - self.capacity, self.tree[node] / self.tree[1]


class Replay:
    def __init__(self, capacity, alpha=0.6):
        self.tree, self.capacity, self.alpha = SumTree(capacity), capacity, alpha
        self.obs = np.zeros((capacity, SIDE * SIDE), np.float32)
        self.nxt = np.zeros_like(self.obs)
        self.act, self.ret, self.disc = (
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.float32),
            np.zeros(capacity, np.float32),
        )
        self.size = self.head = 0
        self.top = 1.0

    def add(self, obs, act, ret, nxt, disc):
        i = self.head
        self.obs[i], self.act[i], self.ret[i], self.nxt[i], self.disc[i] = (
            obs,
            act,
            ret,
            nxt,
            disc,
        )
        self.tree.set(
            i, self.top**self.alpha
        )  # new windows get the highest priority seen
        self.head, self.size = (i + 1) % self.capacity, min(
            self.size + 1, self.capacity
        )

    def sample(self, n, beta, rng):
        idx, prob = self.tree.draw(n, rng)
        assert (prob > 0).all() and (
            idx < self.size
        ).all(), "only filled slots can be drawn"
        w = (self.size * prob) ** -beta
        pick = [
            torch.from_numpy(a[idx])
            for a in (self.obs, self.act, self.ret, self.nxt, self.disc)
        ]
        return idx, torch.from_numpy((w / w.max()).astype(np.float32)), pick

    def update(self, idx, error):
        pr = error + 1e-3
        self.top = max(self.top, float(pr.max()))
        self.tree.set(idx, pr**self.alpha)


class QuantileNet(nn.Module):
    def __init__(self, quantiles):
        super().__init__()
        self.q = quantiles
        self.net = nn.Sequential(
            nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, 4 * quantiles)
        )

    def forward(self, o):
        return self.net(o).view(-1, 4, self.q)


def quantile_huber(pred, target, taus):
    """Rows of [B, Q] quantiles against [B, Q'] target samples -> loss per row."""
    diff = target.unsqueeze(1) - pred.unsqueeze(2)
    huber = torch.where(diff.abs() < 1, 0.5 * diff.pow(2), diff.abs() - 0.5)
    return (
        ((taus.view(1, -1, 1) - (diff.detach() < 0).float()).abs() * huber)
        .mean(2)
        .sum(1)
    )


@torch.no_grad()
def evaluate(net, episodes=40, seed=900):
    env, total = Cavern(seed), 0.0
    for _ in range(episodes):
        o, end = env.reset(), False
        while not end:
            a = int(net(torch.from_numpy(o)[None]).mean(2).argmax())
            o, r, term, trunc = env.step(a)
            total, end = total + r, term or trunc
    return total / episodes


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=3000, help="environment steps")
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    net = QuantileNet(11)
    target = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3, eps=1e-4)
    taus = (torch.arange(11) + 0.5) / 11
    buffer, env, window, updates = Replay(2048), Cavern(args.seed), [], 0
    obs, first = env.reset(), evaluate(net)

    for step in range(1, args.steps + 1):
        epsilon = max(0.05, 1 - step / (0.6 * args.steps))
        with torch.no_grad():
            greedy = int(net(torch.from_numpy(obs)[None]).mean(2).argmax())
        action = int(rng.integers(4)) if rng.random() < epsilon else greedy
        nxt, reward, terminated, truncated = env.step(action)
        window.append((obs, action, reward))
        over = terminated or truncated
        # A full window is stored from its oldest step; at an end all shorter tails are stored as well.
        while window and (len(window) == N_STEP or over):
            ret = sum(GAMMA**k * w[2] for k, w in enumerate(window))
            buffer.add(
                window[0][0],
                window[0][1],
                ret,
                nxt,
                0.0 if terminated else GAMMA ** len(window),
            )
            window.pop(0)
        obs = env.reset() if over else nxt

        if step >= 200 and step % 2 == 0:
            beta = 0.4 + 0.6 * step / args.steps
            idx, weight, (o, a, g, n, d) = buffer.sample(32, beta, rng)
            with torch.no_grad():  # double: the online net chooses, the target net values
                best = net(n).mean(2).argmax(1)
                goal = g[:, None] + d[:, None] * target(n)[torch.arange(32), best]
            pred = net(o)[torch.arange(32), a]
            rows = quantile_huber(pred, goal, taus)
            opt.zero_grad()
            (weight * rows).mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 10)
            opt.step()
            buffer.update(idx, (pred.mean(1) - goal.mean(1)).abs().detach().numpy())
            updates += 1
            if updates % 60 == 0:
                target.load_state_dict(net.state_dict())
        if step % 600 == 0:
            print(
                f"step {step:5d} updates {updates} epsilon {epsilon:.2f} greedy return {evaluate(net):+.3f}"
            )

    last = evaluate(net, 60, seed=901)
    print(f"greedy return {first:+.3f} -> {last:+.3f}")
    assert all(p.grad is None for p in target.parameters())
    if args.steps >= 2500:
        assert last > 0.3 and last > first + 0.3


if __name__ == "__main__":
    main()
