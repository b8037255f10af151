"""Recover what bicycle couriers like about streets from their recorded rides.

Maximum causal entropy inverse reinforcement learning with a small network as
the reward.  The town is a grid of blocks; each block has a handful of map
features.  The reward learned on the home town is then tried on a second town.
"""
import argparse
import csv
import os
import tempfile
from dataclasses import dataclass

import torch
from torch import nn

MOVES = [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]
HORIZON = 24


@dataclass
class Town:
    features: torch.Tensor  # [S, F]
    kernel: torch.Tensor  # [A, S, S]
    start: torch.Tensor  # [S]
    liking: torch.Tensor  # [S] what the riders really want, never shown to the learner


def shift(side, row, col, move):
    r = min(max(row + move[0], 0), side - 1)
    c = min(max(col + move[1], 0), side - 1)
    return r * side + c


def build_kernel(side, slip):
    states = side * side
    kernel = torch.zeros(len(MOVES), states, states)
    for s in range(states):
        row, col = divmod(s, side)
        neighbours = [shift(side, row, col, m) for m in MOVES]
        for a in range(len(MOVES)):
            kernel[a, s, neighbours[a]] += 1.0 - slip
            for other in neighbours:
                kernel[a, s, other] += slip / len(MOVES)
    return kernel


def smooth(field, rounds):
    weight = torch.ones(1, 1, 3, 3) / 9.0
    field = field[None, None]
    for _ in range(rounds):
        field = nn.functional.pad(field, (1, 1, 1, 1), mode="replicate")
        field = nn.functional.conv2d(field, weight)
    field = field[0, 0]
    return (field - field.mean()) / field.std()


def build_town(seed, side=11, slip=0.15):
    g = torch.Generator().manual_seed(seed)
    hill = smooth(torch.randn(side, side, generator=g), 2)
    shops = smooth(torch.randn(side, side, generator=g), 1)
    traffic = smooth(torch.randn(side, side, generator=g), 1)
    cobble = (torch.rand(side, side, generator=g) < 0.25).float()
    feats = torch.stack([hill, shops, traffic, cobble], -1).reshape(-1, 4)
    liking = (
        0.9 * torch.tanh(1.5 * feats[:, 1]) * (feats[:, 2] < 0.5).float()
        - 0.6 * feats[:, 3]
        - 0.3 * feats[:, 0].clamp_min(0.0) ** 2
    )
    states = side * side
    start = torch.full((states,), 1.0 / states)
    return Town(feats, build_kernel(side, slip), start, liking)


@torch.no_grad()
def soft_policy(reward, kernel):
    """Backward sweep; returns log pi[t, s, a]."""
    value = torch.zeros_like(reward)
    steps = []
    for _ in range(HORIZON):
        q = reward[:, None] + (kernel @ value).T
        value = torch.logsumexp(q, dim=1)
        steps.append(q - value[:, None])
    return torch.stack(steps[::-1])


@torch.no_grad()
def visitation(log_pi, kernel, start):
    d = start.clone()
    total = torch.zeros_like(start)
    for t in range(HORIZON):
        total += d
        flow = (d[:, None] * log_pi[t].exp()).T
        d = flow.reshape(-1) @ kernel.reshape(-1, d.numel())
    return total


def ride(town, log_pi, count, generator):
    s = torch.multinomial(town.start, count, True, generator=generator)
    states, actions = [], []
    for t in range(HORIZON):
        a = torch.multinomial(log_pi[t, s].exp(), 1, generator=generator)[:, 0]
        states.append(s)
        actions.append(a)
        s = torch.multinomial(town.kernel[a, s], 1, generator=generator)[:, 0]
    return torch.stack(states, 1), torch.stack(actions, 1)


def ride_nll(log_pi, rides):
    states, actions = rides
    t = torch.arange(HORIZON).expand_as(states)
    return -log_pi[t, states, actions].sum(1).mean().item()


def mean_visits(rides, num_states):
    states, _ = rides
    counts = torch.bincount(states.reshape(-1), minlength=num_states)
    return counts.float() / states.shape[0]


def true_worth(town, log_pi):
    return (visitation(log_pi, town.kernel, town.start) @ town.liking).item()


class StreetReward(nn.Module):
    def __init__(self, features, width=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, width),
            nn.ELU(),
            nn.Linear(width, width),
            nn.ELU(),
            nn.Linear(width, 1, bias=False),
        )

    def forward(self, x):
        return self.body(x).squeeze(-1)


def fit(net, town, rides, held_out, steps, writer):
    optimizer = torch.optim.Adam(net.parameters(), lr=1.2e-2, weight_decay=1e-4)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.05 ** (1 / steps))
    observed = mean_visits(rides, town.start.numel())
    for step in range(1, steps + 1):
        reward = net(town.features)
        log_pi = soft_policy(reward.detach(), town.kernel)
        expected = visitation(log_pi, town.kernel, town.start)
        gap = expected - observed
        optimizer.zero_grad()
        reward.backward(gradient=gap)
        optimizer.step()
        decay.step()
        if step % max(1, steps // 10) == 0 or step == 1:
            row = [
                step,
                0.5 * gap.abs().sum().item() / HORIZON,
                ride_nll(log_pi, rides),
                ride_nll(log_pi, held_out),
            ]
            writer.writerow(row)
            print(
                "step %4d  visit gap %.4f  nll %.3f  held-out nll %.3f" % tuple(row),
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=280)
    parser.add_argument("--rides", type=int, default=600)
    parser.add_argument("--seed", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    home, abroad = build_town(args.seed), build_town(args.seed + 1)
    g = torch.Generator().manual_seed(args.seed + 2)
    rider = soft_policy(home.liking, home.kernel)
    rides = ride(home, rider, args.rides, g)
    held_out = ride(home, rider, args.rides // 3, g)

    net = StreetReward(home.features.shape[1])
    folder = tempfile.mkdtemp(prefix="couriers_")
    with open(os.path.join(folder, "curve.csv"), "w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["step", "gap", "nll", "held_out_nll"])
        fit(net, home, rides, held_out, args.steps, writer)
    torch.save(net.state_dict(), os.path.join(folder, "reward.pt"))

    net.eval()
    with torch.no_grad():
        for label, town in (("home", home), ("abroad", abroad)):
            learned = soft_policy(net(town.features), town.kernel)
            asked = soft_policy(town.liking, town.kernel)
            lazy = soft_policy(torch.zeros_like(town.liking), town.kernel)
            print(
                f"{label:7s} worth of a ride: aimless {true_worth(town, lazy):.2f}  "
                f"learned {true_worth(town, learned):.2f}  "
                f"riders {true_worth(town, asked):.2f}"
            )


if __name__ == "__main__":
    main()
