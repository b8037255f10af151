"""Opening bit locks: goal-conditioned double DQN with hindsight experience replay.

A lock shows n bits; one press flips one bit; the wanted pattern is drawn anew for each episode.
The reward is -1 until the pattern is reached and 0 at that moment, so most episodes teach
nothing, except in hindsight: every transition is stored again with patterns that were really
reached later in the same episode, as if they had been wanted.
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

GAMMA = 0.95


class QNet(nn.Module):
    def __init__(self, bits, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3 * bits, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, bits),
        )

    def forward(self, state, goal):
        s, g = 2 * state - 1, 2 * goal - 1
        return self.net(torch.cat([s, g, s * g], dim=-1))


class Replay:
    def __init__(self, capacity, bits):
        self.s = torch.zeros(capacity, bits)
        self.a = torch.zeros(capacity, dtype=torch.long)
        self.s2 = torch.zeros(capacity, bits)
        self.g = torch.zeros(capacity, bits)
        self.capacity, self.filled, self.at = capacity, 0, 0

    def add(self, s, a, s2, g):
        idx = (self.at + torch.arange(len(s))) % self.capacity
        self.s[idx], self.a[idx], self.s2[idx], self.g[idx] = s, a, s2, g
        self.at = (self.at + len(s)) % self.capacity
        self.filled = min(self.capacity, self.filled + len(s))

    def sample(self, n, gen):
        i = torch.randint(0, self.filled, (n,), generator=gen)
        s2, g = self.s2[i], self.g[i]
        reached = (s2 == g).all(1)  # reward and end belong to the goal, whichever it is
        return self.s[i], self.a[i], s2, g, reached.float() - 1.0, reached


def press(state, action):
    flipped = state.clone()
    rows = torch.arange(len(state))
    flipped[rows, action] = 1 - flipped[rows, action]
    return flipped


@torch.no_grad()
def play(q, bits, episodes, horizon, eps, gen):
    """Run a batch of locks side by side; returns (T, E, ...) with a mask of the live steps."""
    state = torch.randint(0, 2, (episodes, bits), generator=gen).float()
    goal = torch.randint(0, 2, (episodes, bits), generator=gen).float()
    alive = (state != goal).any(1)  # a lock that is born open takes no press
    steps = []
    for _ in range(horizon):
        action = q(state, goal).argmax(1)
        random_action = torch.randint(0, bits, (episodes,), generator=gen)
        explore = torch.rand(episodes, generator=gen) < eps
        action = torch.where(explore, random_action, action)
        after = torch.where(alive[:, None], press(state, action), state)
        steps.append((state, action, after, alive))
        alive = alive & (after != goal).any(1)
        state = after
    s, a, s2, live = (torch.stack(t) for t in zip(*steps))
    return s, a, s2, live, goal, ~alive


def remember(buffer, episode, hindsight, gen):
    s, a, s2, live, goal, _ = episode
    horizon, n = a.shape
    wanted = goal.expand(horizon, n, -1)
    buffer.add(s[live], a[live], s2[live], wanted[live])
    t = torch.arange(horizon)[:, None].expand(horizon, n)
    length = live.sum(0, keepdim=True)  # live steps come first
    for _ in range(hindsight):  # strategy "future"
        u = torch.rand(horizon, n, generator=gen)
        later = t + (u * (length - t).clamp_min(1)).long()
        later = later.clamp_max(horizon - 1)
        achieved = s2[later, torch.arange(n).expand(horizon, n)]
        # a press that starts with the substituted goal already met would not have been made
        useful = live & (s != achieved).any(-1)
        buffer.add(s[useful], a[useful], s2[useful], achieved[useful])


def learn(q, target, opt, batch):
    s, a, s2, g, reward, done = batch
    with torch.no_grad():
        best = q(s2, g).argmax(1, keepdim=True)  # double DQN
        nxt = target(s2, g).gather(1, best).squeeze(1)
        y = reward + GAMMA * nxt * (~done).float()
        y = y.clamp(-1 / (1 - GAMMA), 0.0)  # the returns that can be
    value = q(s, g).gather(1, a[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(value, y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(q.parameters(), 10.0)
    opt.step()
    with torch.no_grad():
        for p, tp in zip(q.parameters(), target.parameters()):
            tp.lerp_(p, 0.05)
    return loss.item()


def success(q, bits, horizon, seed=1234, episodes=300):
    gen = torch.Generator().manual_seed(seed)
    *_, opened = play(q, bits, episodes, horizon, eps=0.0, gen=gen)
    return opened.float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--bits", type=int, default=9)
    ap.add_argument("--steps", type=int, default=1200, help="optimizer steps")
    ap.add_argument(
        "--updates", type=int, default=20, help="optimizer steps for each collection"
    )
    ap.add_argument("--episodes", type=int, default=16)
    ap.add_argument("--hindsight", type=int, default=4)
    args = ap.parse_args()

    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(100)
    q = QNet(args.bits)
    target = copy.deepcopy(q).requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    buffer = Replay(20000, args.bits)
    horizon = args.bits

    start = success(q, args.bits, horizon)
    print(f"before: {start:.2f} of the locks open")
    curve, loss = [start], float("nan")
    cycles = args.steps // args.updates
    for cycle in range(cycles):
        eps = max(0.05, 0.3 * (1 - 1.5 * cycle / cycles))
        episode = play(q, args.bits, args.episodes, horizon, eps, gen)
        remember(buffer, episode, args.hindsight, gen)
        losses = [
            learn(q, target, opt, buffer.sample(128, gen)) for _ in range(args.updates)
        ]
        loss = sum(losses) / len(losses)
        # the TD loss does not have to fall, as the targets move: success is the measure
        if (cycle + 1) % 10 == 0:
            curve.append(success(q, args.bits, horizon))
            print(
                f"cycle {cycle + 1:3d} eps {eps:.2f} td loss {loss:.4f} "
                f"replay {buffer.filled:5d} success {curve[-1]:.2f}"
            )

    final = success(q, args.bits, horizon)
    assert all(not p.requires_grad for p in target.parameters())
    assert loss == loss
    if args.steps >= 1000:
        assert final > 0.8 and final > start + 0.5, curve
    print(f"after: {final:.2f} of the locks open")


if __name__ == "__main__":
    main()
