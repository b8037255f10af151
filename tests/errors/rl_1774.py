"""Q-learning from slices of recorded trajectories, which a buffer draws.

After pytorch/rl, pull request 1774.
"""

import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset


@dataclass
class Config:
    size: int = 5
    episodes: int = 260
    horizon: int = 40
    slice_len: int = 3
    slices: int = 48
    updates: int = 150
    gamma: float = 0.9
    lr: float = 3e-3
    tau: float = 0.05
    hidden: int = 64
    seed: int = 43


class Pond:
    """Grid with a dock (+1) and a whirlpool (-1); every move costs a little."""

    moves = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, cfg):
        self.n, self.horizon = cfg.size, cfg.horizon
        self.goal, self.hole = (cfg.size // 2, cfg.size - 1), (
            cfg.size - 1,
            cfg.size // 2,
        )

    def reset(self, rng):
        self.t = 0
        while True:
            self.pos = tuple(int(v) for v in rng.integers(0, 3, 2))
            if sum(self.pos) <= 2:
                return self.obs()

    def obs(self):
        return self.pos[0] * self.n + self.pos[1]

    def step(self, action):
        self.t += 1
        self.pos = tuple(
            int(v)
            for v in np.clip(np.array(self.pos) + self.moves[action], 0, self.n - 1)
        )
        terminated = self.pos in (self.goal, self.hole)
        reward = -0.03 + (
            1.0 if self.pos == self.goal else -1.0 if self.pos == self.hole else 0.0
        )
        return self.obs(), reward, terminated, self.t >= self.horizon


def collect(cfg, rng):
    """Flat storage as in a replay buffer, plus start and length of each trajectory."""
    env, store, starts, lengths = Pond(cfg), [], [], []
    for _ in range(cfg.episodes):
        obs, done = env.reset(rng), False
        starts.append(len(store))
        while not done:
            action = int(rng.integers(0, 4))
            nxt, reward, terminated, truncated = env.step(action)
            store.append((obs, action, reward, nxt, float(terminated)))
            obs, done = nxt, terminated or truncated
        lengths.append(len(store) - starts[-1])
    cols = [np.array(c) for c in zip(*store)]
    return cols, np.array(starts), np.array(lengths)


def relative_start_floor(u, length, slice_len):
    return np.floor((length - slice_len) * u).astype(int)


def relative_start_closed(u, length, slice_len):
    return np.floor((length - slice_len + 1) * u).astype(int)


class SliceSampler(IterableDataset):
    def __init__(self, cfg, relative, cols, starts, lengths):
        keep = lengths >= cfg.slice_len
        self.cols, self.starts, self.lengths = cols, starts[keep], lengths[keep]
        self.cfg, self.rng = cfg, np.random.default_rng(cfg.seed)
        self.relative = relative

    def __iter__(self):
        cfg = self.cfg
        for _ in range(cfg.updates):
            traj = self.rng.integers(0, len(self.starts), cfg.slices)
            rel = self.relative(
                self.rng.random(cfg.slices), self.lengths[traj], cfg.slice_len
            )
            idx = (self.starts[traj] + rel)[:, None] + np.arange(cfg.slice_len)
            obs, action, reward, nxt, term = (c[idx] for c in self.cols)
            yield (
                torch.from_numpy(obs),
                torch.from_numpy(action),
                torch.from_numpy(reward).float(),
                torch.from_numpy(nxt),
                torch.from_numpy(term).float(),
            )


class QNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.size**2, cfg.hidden)
        self.body = nn.Sequential(
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, 4),
        )

    def forward(self, obs):
        return self.body(self.emb(obs))


@torch.no_grad()
def evaluate(q, cfg, episodes=60):
    env, rng, total = Pond(cfg), np.random.default_rng(7), 0.0
    for _ in range(episodes):
        obs, done = env.reset(rng), False
        while not done:
            obs, reward, terminated, truncated = env.step(
                q(torch.tensor([obs])).argmax().item()
            )
            total += reward
            done = terminated or truncated
    return total / episodes


def train(cfg, relative):
    torch.manual_seed(cfg.seed)
    cols, starts, lengths = collect(cfg, np.random.default_rng(cfg.seed))
    loader = DataLoader(
        SliceSampler(cfg, relative, cols, starts, lengths), batch_size=None
    )
    q, target = QNet(cfg), QNet(cfg)
    target.load_state_dict(q.state_dict())
    target.requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), lr=cfg.lr)
    running = []
    for step, (obs, action, reward, nxt, term) in enumerate(loader):
        with torch.no_grad():
            best = q(nxt).argmax(-1, keepdim=True)
            backup = (
                reward + cfg.gamma * (1 - term) * target(nxt).gather(-1, best)[..., 0]
            )
        pred = q(obs).gather(-1, action[..., None])[..., 0]
        loss = F.smooth_l1_loss(pred, backup)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        with torch.no_grad():
            for pt, p in zip(target.parameters(), q.parameters()):
                pt.lerp_(p, cfg.tau)
        running.append(loss.item())
        if step % 30 == 29:
            td_loss, mean_q = np.mean(running[-30:]), pred.mean().item()
            print(
                f"update {step} td_loss {td_loss:.5f} mean_q {mean_q:.3f}", flush=True
            )
    print(f"greedy return {evaluate(q, cfg):.3f}")
    return lengths


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--steps", type=int, default=Config.updates)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, updates=args.steps, lr=args.lr)
    relative = relative_start_closed if args.fixed else relative_start_floor
    lengths = train(cfg, relative)
    if args.prove:
        lengths = lengths[lengths > cfg.slice_len]
        ends = relative(np.nextafter(1, 0), lengths, cfg.slice_len) + cfg.slice_len
        never = (ends < lengths).sum()
        print(
            f"the last transition of {never} of {len(ends)} trajectories is never drawn"
        )
        print("fault shows:", "yes" if never else "no", flush=True)


if __name__ == "__main__":
    main()
