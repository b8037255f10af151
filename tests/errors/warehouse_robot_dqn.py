"""Double DQN for a warehouse robot that carries a crate to one of two drop-off bays.

The near bay pays little, the far bay pays well; a delivery ends the episode.
Eight robots run in parallel and restart by themselves.
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, COLS = 5, 7
N_ENVS = 8
BAYS = {(2, 0): 0.45, (2, 6): 1.0}
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
MAX_STEPS = 60


class Warehouse:
    def __init__(self, n, seed):
        self.n = n
        self.gen = torch.Generator().manual_seed(seed)
        self.pos = [self._spawn() for _ in range(n)]
        self.t = [0] * n

    def _spawn(self):
        return int(torch.randint(1, 4, (1,), generator=self.gen)), 1

    def observe(self):
        return torch.tensor([r * COLS + c for r, c in self.pos])

    def step(self, actions):
        rewards, terminated, truncated, finals = [], [], [], []
        for i, a in enumerate(actions.tolist()):
            dr, dc = MOVES[a]
            r = min(max(self.pos[i][0] + dr, 0), ROWS - 1)
            c = min(max(self.pos[i][1] + dc, 0), COLS - 1)
            self.pos[i] = (r, c)
            self.t[i] += 1
            end = (r, c) in BAYS
            cut = not end and self.t[i] >= MAX_STEPS
            finals.append(r * COLS + c)
            rewards.append(BAYS.get((r, c), -0.01))
            terminated.append(end)
            truncated.append(cut)
            if end or cut:
                self.pos[i], self.t[i] = self._spawn(), 0
        nxt = self.observe()
        cut = torch.tensor(truncated)
        # a time limit is not a delivery: keep the cell the robot was in
        nxt = torch.where(cut, torch.tensor(finals), nxt)
        return nxt, torch.tensor(rewards), torch.tensor(terminated).float(), cut


class QNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(ROWS * COLS, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, len(MOVES)),
        )

    def forward(self, cell):
        return self.net(F.one_hot(cell, ROWS * COLS).float())


class Replay:
    def __init__(self, seed):
        self.rows = []
        self.gen = torch.Generator().manual_seed(seed)

    def add(self, *fields):
        self.rows.extend(zip(*fields))

    def sample(self, k):
        idx = torch.randint(0, len(self.rows), (k,), generator=self.gen).tolist()
        return [torch.stack(col) for col in zip(*(self.rows[i] for i in idx))]


def act(q, obs, eps, gen):
    with torch.no_grad():
        greedy = q(obs).argmax(1)
    rand = torch.randint(0, len(MOVES), greedy.shape, generator=gen)
    return torch.where(torch.rand(len(obs), generator=gen) < eps, rand, greedy)


def evaluate(q, episodes=40):
    gen = torch.Generator().manual_seed(4321)
    env, done, total = Warehouse(N_ENVS, seed=99), 0, 0.0
    for _ in range(400):
        _, r, term, trunc = env.step(act(q, env.observe(), 0.03, gen))
        total += r.sum().item()
        done += int(term.sum() + trunc.sum())
        if done >= episodes:
            break
    return total / max(done, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--gamma", type=float, default=0.95)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    q = QNet()
    q_target = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), lr=args.lr)
    env, replay = Warehouse(N_ENVS, seed=1), Replay(seed=2)
    gen = torch.Generator().manual_seed(3)

    def interact(eps):
        obs = env.observe()
        a = act(q, obs, eps, gen)
        nxt, r, term, _ = env.step(a)
        replay.add(obs, a, r, nxt, term)

    for _ in range(150):
        interact(1.0)

    worst, first = 0.0, None
    for step in range(args.steps):
        interact(max(0.1, 1 - step / (0.5 * args.steps)))
        obs, a, r, nxt, term = replay.sample(args.batch)
        with torch.no_grad():
            best = q(nxt).argmax(1, keepdim=True)
            future = q_target(nxt).gather(1, best).squeeze(1)
            target = r + args.gamma * future
            if args.fixed:
                target = r + args.gamma * (1 - term) * future
        if args.prove:
            gap = (target - (r + args.gamma * future * (term == 0))).abs().max().item()
            first = step if gap > 1e-6 and first is None else first
            worst = max(worst, gap)
        value = q(obs).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(value, target)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        if (step + 1) % 30 == 0:
            q_target.load_state_dict(q.state_dict())
        if (step + 1) % 150 == 0:
            print(
                f"step {step + 1:4d} loss {loss.item():.5f} mean Q {value.mean().item():.3f} "
                f"return {evaluate(q):.3f}"
            )

    print(f"average return of the final policy: {evaluate(q):.3f}")
    if args.prove:
        print(
            f"largest distance of a target to the Bellman target {worst:.4f}, first at step {first}"
        )
        print("fault shows:", "yes" if worst > 1e-6 else "no")


if __name__ == "__main__":
    main()
