"""A deep Q-network learns to land drones on a pad.

After navneet-nmk/pytorch-rl, issue 2.
"""

import argparse
import copy

import torch
from torch import nn
import torch.nn.functional as F

DRONES, MOVES, GAMMA = 32, 3, 0.95


class Drones:
    """Each has a height, a speed and a drift; the thrust is none, half or full."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = self.fresh()

    def fresh(self):
        draw = torch.rand(DRONES, 3, generator=self.generator)
        return torch.stack([0.5 + 0.5 * draw[:, 0], -0.2 * draw[:, 1], draw[:, 2]], 1)

    def step(self, move):
        height, speed, drift = self.state.unbind(1)
        speed = speed + 0.04 * (move - 1) - 0.02 * drift
        height = height + 0.3 * speed
        landed, lost = height <= 0, height > 1.5
        softly = landed & (speed > -0.3)
        reward = -0.05 + softly.float() - (landed & ~softly).float() - lost.float()
        after = torch.stack([height, speed, drift], 1)
        done = landed | lost
        self.state = torch.where(done[:, None], self.fresh(), after)
        return after, reward, done.float()


class Replay:
    def __init__(self, size, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.size, self.rows = size, []

    def push(self, *row):
        self.rows = (self.rows + [row])[-self.size :]

    def sample(self, count):
        parts = [torch.cat(part) for part in zip(*self.rows)]
        pick = torch.randint(len(parts[0]), (count,), generator=self.generator)
        return [part[pick] for part in parts]


def network(width=64):
    return nn.Sequential(
        nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, MOVES),
    )  # fmt: skip


@torch.no_grad()
def targets(target_net, reward, after, done, fixed):
    best = target_net(after).amax(1)
    if fixed:
        best = best * (1 - done)
    return reward + GAMMA * best


def choose(net, state, step, generator):
    with torch.no_grad():
        move = net(state).argmax(1)
    share = max(0.05, 1 - step / 300)
    chance = torch.rand(DRONES, generator=generator) < share
    return torch.where(
        chance, torch.randint(MOVES, (DRONES,), generator=generator), move
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    net, drones, replay = network(), Drones(args.seed), Replay(200, args.seed)
    target_net = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
    explore = torch.Generator().manual_seed(args.seed)
    for step in range(-20, args.steps):
        state = drones.state
        move = choose(net, state, step, explore)
        after, reward, done = drones.step(move)
        replay.push(state, move, reward, after, done)
        if step < 0:
            continue
        state, move, reward, after, done = replay.sample(128)
        value = net(state).gather(1, move[:, None])[:, 0]
        goal = targets(target_net, reward, after, done, args.fixed)
        loss = F.smooth_l1_loss(value, goal)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        if step % 20 == 19:
            target_net.load_state_dict(net.state_dict())
        gain = reward.mean().item()
        print(f"step {step} loss {loss.item():.4f} reward {gain:.4f}", flush=True)
    if args.prove:
        _, _, reward, after, done = replay.sample(1024)
        goal = targets(target_net, reward, after, done, args.fixed)
        gap = (goal - reward).abs()[done.bool()].mean().item()
        print(f"at the end of an episode the target is off the reward by {gap:.4f}")
        print("fault shows:", "yes" if gap > 1e-6 else "no", flush=True)


if __name__ == "__main__":
    main()
