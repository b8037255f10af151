"""Two robots learn with QMIX to stand on different goals of a corridor.

Each has a network of its own values, a mixer joins them with the help of the state.
After MARL, issue 8.
"""

import argparse
import copy

import torch
from torch import nn
import torch.nn.functional as F

CELLS, AGENTS, MOVES, LIMIT, GAMMA = 7, 2, 3, 8, 0.95


class AgentNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(AGENTS * CELLS + AGENTS, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, MOVES),
        )  # fmt: skip

    def forward(self, state):
        name = torch.eye(AGENTS).expand(*state.shape[:-1], AGENTS, AGENTS)
        seen = state[..., None, :].expand(*state.shape[:-1], AGENTS, state.shape[-1])
        return self.layers(torch.cat([seen, name], -1))


class Mixer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.width = width
        self.weight1 = nn.Linear(AGENTS * CELLS, AGENTS * width)
        self.bias1 = nn.Linear(AGENTS * CELLS, width)
        self.weight2 = nn.Linear(AGENTS * CELLS, width)
        self.bias2 = nn.Sequential(
            nn.Linear(AGENTS * CELLS, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, values, state):
        weight = self.weight1(state).abs().view(-1, AGENTS, self.width)
        hidden = F.elu((values[:, None] @ weight)[:, 0] + self.bias1(state))
        total = (hidden * self.weight2(state).abs()).sum(1)
        return total + self.bias2(state)[:, 0]


def encode(cells):
    return F.one_hot(cells, CELLS).flatten(-2).float()


def advance(cells, moves):
    cells = (cells + moves - 1).clamp(0, CELLS - 1)
    ends = (cells.min(-1).values == 0) & (cells.max(-1).values == CELLS - 1)
    return cells, ends.float() - 0.05, ends


def distance(one, two):
    flat = nn.utils.parameters_to_vector
    return (flat(one.parameters()) - flat(two.parameters())).norm().item()


class Learner:
    def __init__(self, args):
        self.fixed, self.every = args.fixed, args.target_every
        self.agent, self.mixer = AgentNet(), Mixer()
        self.target_agent = copy.deepcopy(self.agent).requires_grad_(False)
        self.target_mixer = copy.deepcopy(self.mixer).requires_grad_(False)
        self.parameters = [*self.agent.parameters(), *self.mixer.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=args.lr)
        self.gap = 0.0

    def learn(self, batch, step):
        cells, moves, gains, after, ends = batch
        chosen = self.agent(encode(cells)).gather(2, moves[..., None])[..., 0]
        total = self.mixer(chosen, encode(cells))
        with torch.no_grad():
            best = self.agent(encode(after)).argmax(2, keepdim=True)
            then = self.target_agent(encode(after)).gather(2, best)[..., 0]
            then = self.target_mixer(then, encode(after))
            wanted = gains + GAMMA * (1 - ends.float()) * then
        loss = F.mse_loss(total, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 10.0)
        self.optimizer.step()
        if (step + 1) % self.every == 0:
            self.target_agent.load_state_dict(self.agent.state_dict())
            source = self.mixer if self.fixed else self.target_mixer
            self.target_mixer.load_state_dict(source.state_dict())
            self.gap = distance(self.mixer, self.target_mixer)
        return loss.item()


@torch.no_grad()
def play(agent, cells, epsilon, generator):
    """Steps of many games at once; a game that is over stays where it is."""
    steps, over = [], torch.zeros(len(cells), dtype=torch.bool)
    for _ in range(LIMIT):
        moves = agent(encode(cells)).argmax(2)
        strange = torch.randint(MOVES, moves.shape, generator=generator)
        try_out = torch.rand(moves.shape, generator=generator) < epsilon
        moves = torch.where(try_out, strange, moves)
        after, gains, ends = advance(cells, moves)
        steps.append([part[~over] for part in (cells, moves, gains, after, ends)])
        over, cells = over | ends, torch.where(over[:, None], cells, after)
    return [torch.cat(parts) for parts in zip(*steps)], over.float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--target-every", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(args.seed)
    learner, memory = Learner(args), []
    for step in range(args.steps):
        start = torch.randint(1, CELLS - 1, (16, AGENTS), generator=generator)
        epsilon = max(0.1, 1 - step / (0.6 * args.steps))
        memory.append(play(learner.agent, start, epsilon, generator)[0])
        pool = [torch.cat(parts) for parts in zip(*memory[-50:])]
        rows = torch.randint(len(pool[0]), (128,), generator=generator)
        loss = learner.learn([part[rows] for part in pool], step)
        print(f"step {step} loss {loss:.4f}", flush=True)
    start = torch.randint(1, CELLS - 1, (200, AGENTS), generator=generator)
    print(f"games won {play(learner.agent, start, 0.0, generator)[1]:.4f}")
    if args.prove:
        print(f"distance of mixer and target after an update {learner.gap:.4f}")
        print("fault shows:", "yes" if learner.gap > 1e-6 else "no", flush=True)


if __name__ == "__main__":
    main()
