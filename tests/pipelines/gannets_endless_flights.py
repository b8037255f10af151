"""Next move of a foraging gannet as a mixture density, learned from endless flights.

Worker processes simulate flights without end, each with a seed of its own, and deliver
ready batches; there are no epochs and nothing is seen twice. The loss is a negative log
density of small displacements and goes well below zero.
"""

import argparse
import dataclasses
import logging
import math
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Plan:
    seed: int = 0
    steps: int = 500
    batch: int = 32
    length: int = 24
    workers: int = 2
    hidden: int = 48
    components: int = 4
    lr: float = 6e-3
    report: int = 50


class Colony:
    """Two modes of flight: straight commuting and searching in tight turns."""

    def __init__(self, rng):
        self.rng = rng

    def flights(self, count, length):
        rng = self.rng
        heading = rng.uniform(-np.pi, np.pi, count)
        searching = rng.random(count) < 0.5
        side = rng.choice([-1.0, 1.0], count)
        moves = np.empty((count, length, 2))
        for t in range(length):
            switch = rng.random(count) < np.where(searching, 0.10, 0.06)
            searching ^= switch
            side = np.where(rng.random(count) < 0.15, -side, side)
            turn = np.where(
                searching,
                side * 0.7 + rng.normal(0, 0.08, count),
                rng.normal(0, 0.05, count),
            )
            speed = np.where(searching, 0.12, 0.35) * rng.lognormal(0, 0.06, count)
            heading = heading + turn
            moves[:, t, 0] = speed * np.cos(heading)
            moves[:, t, 1] = speed * np.sin(heading)
        moves += rng.normal(0, 0.006, moves.shape)
        return torch.tensor(moves, dtype=torch.float32)


class EndlessFlights(IterableDataset):
    """Yields whole batches for ever; every worker has its own stream."""

    def __init__(self, plan):
        super().__init__()
        self.plan = plan

    def __iter__(self):
        worker = get_worker_info()
        number = 0 if worker is None else worker.id
        colony = Colony(np.random.default_rng([self.plan.seed, 1, number]))
        while True:
            yield colony.flights(self.plan.batch, self.plan.length)


class FlightModel(nn.Module):
    def __init__(self, hidden, components):
        super().__init__()
        self.gru = nn.GRU(2, hidden, batch_first=True)
        self.weights = nn.Linear(hidden, components)
        self.forward_side = nn.Linear(hidden, 2 * components)
        self.log_std = nn.Linear(hidden, 2 * components)
        self.components = components

    def forward(self, moves):
        """Density of the next move, in the frame of the latest one."""
        frame = F.normalize(moves, dim=-1)
        speed = moves.norm(dim=-1, keepdim=True)
        turn = torch.zeros_like(speed)
        turn[:, 1:, 0] = self.angle(frame[:, :-1], frame[:, 1:])
        states, _ = self.gru(torch.cat([4 * speed, turn], dim=-1))
        shape = (*states.shape[:2], self.components, 2)
        mean = self.forward_side(states).view(shape)
        std = self.log_std(states).view(shape).clamp(-6, 2).exp()
        mixture = Categorical(logits=self.weights(states))
        return MixtureSameFamily(mixture, Independent(Normal(mean, std), 1))

    @staticmethod
    def angle(a, b):
        cross = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
        return torch.atan2(cross, (a * b).sum(dim=-1))

    def loss(self, moves):
        past, following = moves[:, :-1], moves[:, 1:]
        frame = F.normalize(past, dim=-1)
        ahead = (following * frame).sum(dim=-1)
        aside = frame[..., 0] * following[..., 1] - frame[..., 1] * following[..., 0]
        target = torch.stack([ahead, aside], dim=-1)
        return -self(past).log_prob(target).mean()


@torch.no_grad()
def held_density(model, flights):
    model.eval()
    losses = [model.loss(part) * len(part) for part in flights.split(100)]
    model.train()
    return (sum(losses) / len(flights)).item()


def train(plan, folder):
    torch.manual_seed(plan.seed)
    held = Colony(np.random.default_rng([plan.seed, 2])).flights(400, plan.length)
    stream = DataLoader(
        EndlessFlights(plan),
        batch_size=None,
        num_workers=plan.workers,
        prefetch_factor=4,
        generator=torch.Generator().manual_seed(plan.seed),
    )
    model = FlightModel(plan.hidden, plan.components)
    optimizer = torch.optim.Adam(model.parameters(), lr=plan.lr)
    warmup = 40

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (plan.steps - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    best, path = float("inf"), os.path.join(folder, "flight.pt")
    running = 0.0
    model.train()
    for step, moves in zip(range(1, plan.steps + 1), stream):
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(moves)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running += loss.item()
        if step % plan.report == 0:
            density = held_density(model, held)
            logger.info(
                "step %4d  stream %+.4f  held %+.4f",
                step,
                running / plan.report,
                density,
            )
            if density < best:
                best = density
                torch.save(model.state_dict(), path)
            running = 0.0
    model.load_state_dict(torch.load(path))
    return model, best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument("--steps", type=int, default=Plan.steps)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    plan = Plan(seed=args.seed, steps=args.steps)
    with tempfile.TemporaryDirectory() as folder:
        model, best = train(plan, folder)
    final = Colony(np.random.default_rng([plan.seed, 3])).flights(400, plan.length)
    logger.info(
        "best held %+.4f, other flights %+.4f", best, held_density(model, final)
    )


if __name__ == "__main__":
    main()
