"""Self-play training of a policy and value network for connect-four on a 5 x 5 board.

Each generation plays games, labels the positions with a playout search and fits the
network to the visit shares and the results.
"""

import argparse
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import List, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS, COLS, CONNECT = 5, 5, 4
EPS = 1e-8

logger = logging.getLogger("c4a0")


class Sample(NamedTuple):
    board: np.ndarray
    policy: np.ndarray
    value: float


def lines():
    found = []
    for r in range(ROWS):
        for c in range(COLS):
            for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
                cells = [(r + k * dr, c + k * dc) for k in range(CONNECT)]
                if all(0 <= y < ROWS and 0 <= x < COLS for y, x in cells):
                    found.append([y * COLS + x for y, x in cells])
    return np.array(found)


LINES = lines()


class Position:
    """Board from the view of the player to move: +1 own stones, -1 the other's."""

    def __init__(self, cells=None):
        self.cells = np.zeros(ROWS * COLS, np.int8) if cells is None else cells

    def heights(self):
        return (self.cells.reshape(ROWS, COLS) != 0).sum(0)

    def legal(self):
        return np.flatnonzero(self.heights() < ROWS)

    def play(self, column):
        cells = self.cells.copy()
        cells[(self.heights()[column]) * COLS + column] = 1
        return Position(-cells)

    def result(self):
        sums = self.cells[LINES].sum(1)
        if (sums == -CONNECT).any():
            return -1.0
        return 0.0 if not len(self.legal()) else None

    def planes(self):
        board = self.cells.reshape(ROWS, COLS)
        return np.stack([board == 1, board == -1]).astype(np.float32)


def heuristic(position):
    sums = position.cells[LINES]
    own = (sums == 1).sum(1) * ((sums == -1).sum(1) == 0)
    other = (sums == -1).sum(1) * ((sums == 1).sum(1) == 0)
    return float(np.tanh(0.06 * ((own**2).sum() - (other**2).sum())))


def search(position, temperature):
    """Two-ply values of the moves, as shares with the given temperature."""
    values = np.full(COLS, -np.inf)
    for column in position.legal():
        child = position.play(column)
        result = child.result()
        if result is None:
            replies = []
            for reply in child.legal():
                leaf = child.play(reply)
                outcome = leaf.result()
                replies.append(heuristic(leaf) if outcome is None else outcome)
            values[column] = min(replies)
        else:
            values[column] = -result
    shares = np.exp((values - values.max()) / temperature)
    shares[shares < 0.02] = 0
    return shares / shares.sum(), float(values.max())


def self_play(games, temperature, rng) -> List[Sample]:
    samples = []
    for _ in range(games):
        position, trace = Position(), []
        while True:
            result = position.result()
            if result is not None:
                break
            policy, guess = search(position, temperature)
            trace.append((position.planes(), policy, guess))
            mixed = 0.7 * policy + 0.3 * (policy > 0) / (policy > 0).sum()
            position = position.play(rng.choice(COLS, p=mixed))
        for k, (planes, policy, guess) in enumerate(reversed(trace)):
            outcome = result if k % 2 == 1 else -result
            samples.append(Sample(planes, policy, 0.5 * (outcome + guess)))
    return samples


def to_tensors(samples):
    boards = np.stack([s.board for s in samples])
    policies = np.stack([s.policy for s in samples])
    values = np.array([s.value for s in samples])
    flipped = boards[..., ::-1], policies[:, ::-1]
    return TensorDataset(
        torch.tensor(np.concatenate([boards, flipped[0]])),
        torch.tensor(np.concatenate([policies, flipped[1]]), dtype=torch.float32),
        torch.tensor(np.tile(values, 2), dtype=torch.float32),
    )


class KLDivergence(nn.Module):
    """Mean divergence of q from p, both given as log probabilities."""

    def forward(self, p, q):
        return (p.exp() * (p - q)).sum(-1).mean()


@dataclass
class ModelConfig:
    n_filters: int = 24
    n_residual: int = 2
    policy_temperature: float = 0.3
    lr: float = 3e-3
    l2_reg: float = 1e-4


class Residual(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n, n, 3, padding=1, bias=False),
            nn.BatchNorm2d(n),
            nn.ReLU(),
            nn.Conv2d(n, n, 3, padding=1, bias=False),
            nn.BatchNorm2d(n),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


class ConnectFourNet(nn.Module):
    def __init__(self, config, fixed):
        super().__init__()
        n, flat = config.n_filters, config.n_filters * ROWS * COLS
        blocks = [Residual(n) for _ in range(config.n_residual)]
        self.trunk = nn.Sequential(nn.Conv2d(2, n, 3, padding=1), *blocks, nn.Flatten())
        self.fc_policy = nn.Sequential(
            nn.Linear(flat, 48), nn.ReLU(), nn.Linear(48, COLS)
        )
        self.fc_value = nn.Sequential(nn.Linear(flat, 32), nn.ReLU(), nn.Linear(32, 1))
        self.policy_kl_div = KLDivergence()
        self.fixed = fixed

    def forward(self, boards):
        hidden = self.trunk(boards)
        policy_logprob = self.fc_policy(hidden).log_softmax(-1)
        return policy_logprob, torch.tanh(self.fc_value(hidden)).squeeze(-1)

    def losses(self, batch):
        boards, policy, value = batch
        policy_logprob, predicted = self(boards)
        target_logprob = (policy + EPS).log()
        if self.fixed:
            policy_loss = self.policy_kl_div(target_logprob, policy_logprob)
        else:
            policy_loss = self.policy_kl_div(policy_logprob, target_logprob)
        value_loss = (predicted - value).square().mean()
        return policy_loss, value_loss


@torch.no_grad()
def validate(model, dataset):
    model.eval()
    boards, policy, _ = dataset.tensors
    logprob, _ = model(boards)
    policy_loss, value_loss = model.losses(dataset.tensors)
    cross = -(policy * logprob).sum(-1).mean().item()
    entropy = -(logprob.exp() * logprob).sum(-1).mean().item()
    target_entropy = -(policy * (policy + EPS).log()).sum(-1).mean().item()
    model.train()
    return policy_loss.item(), value_loss.item(), cross, entropy, target_entropy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--games", type=int, default=22)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    config = ModelConfig()
    model = ConnectFourNet(config, args.fixed)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config.lr, weight_decay=config.l2_reg
    )
    validation = to_tensors(
        self_play(10, config.policy_temperature, np.random.default_rng(args.seed + 9))
    )
    generator = torch.Generator().manual_seed(args.seed)
    steps, pool = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for gen in range(args.generations):
            pool += self_play(args.games, config.policy_temperature, rng)
            dataset = to_tensors(pool[-600:])
            loader = DataLoader(
                dataset, args.batch_size, shuffle=True, generator=generator
            )
            for _ in range(args.epochs):
                total = 0.0
                for batch in loader:
                    policy_loss, value_loss = model.losses(batch)
                    loss = policy_loss + value_loss
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    total += loss.item()
                    steps += 1
            torch.save(model.state_dict(), Path(folder) / f"gen_{gen}.pt")
            policy_loss, value_loss, cross, entropy, wanted = validate(
                model, validation
            )
            logger.info(
                "gen %d samples %d train loss %.4f | val policy_kl %.4f value_mse %.4f "
                "cross entropy %.4f policy entropy %.4f target entropy %.4f",
                gen,
                len(dataset),
                total / len(loader),
                policy_loss,
                value_loss,
                cross,
                entropy,
                wanted,
            )
    logger.info("optimizer steps %d", steps)


if __name__ == "__main__":
    main()
