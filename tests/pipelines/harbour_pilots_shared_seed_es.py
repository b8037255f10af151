"""Evolution strategy for a harbour pilot: berthing a barge in a tidal current.

Two gloo processes evaluate halves of each population (Salimans et al., 2017). Both can
rebuild every perturbation from its seed, so returns are the only thing that travels;
each process then forms the same search gradient and takes the same Adam step. Nothing
is differentiated: the whole run happens without a graph.
"""

import argparse
import math
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector


@dataclass
class Options:
    seed: int
    generations: int = 90
    pairs: int = 32
    sigma: float = 0.08
    lr: float = 0.05
    decay: float = 0.002
    trips: int = 12
    horizon: int = 60


class Harbour:
    """A barge with thrust along its heading and a rudder; many trips at once."""

    def __init__(self, horizon):
        self.horizon = horizon

    def start(self, trips, generator):
        position = torch.rand(trips, 2, generator=generator) * 4 - 2
        position[:, 1] += 4
        heading = math.pi * (torch.rand(trips, generator=generator) - 0.5) - math.pi / 2
        current = 0.25 * (torch.rand(trips, generator=generator) * 2 - 1)
        return position, heading, current

    def sail(self, policy, start):
        """Return per trip: minus the mean distance, minus a fee for speed at berth."""
        position, heading, current = start
        speed = torch.zeros_like(heading)
        turn = torch.zeros_like(heading)
        cost = torch.zeros_like(heading)
        for _ in range(self.horizon):
            seen = torch.stack(
                [
                    position[:, 0] / 3,
                    position[:, 1] / 3,
                    torch.cos(heading),
                    torch.sin(heading),
                    speed,
                    turn,
                    4 * current,
                ],
                dim=1,
            )
            action = policy(seen)
            thrust, rudder = action[:, 0].tanh(), action[:, 1].tanh()
            speed = 0.9 * speed + 0.15 * thrust
            turn = 0.7 * turn + 0.25 * rudder * (0.3 + speed.abs())
            heading = heading + turn * 0.3
            drift = torch.stack([current, torch.zeros_like(current)], dim=1)
            course = torch.stack([torch.cos(heading), torch.sin(heading)], dim=1)
            position = position + 0.2 * (speed[:, None] * course + drift)
            cost = cost + position.norm(dim=1) / self.horizon
        return -(cost + 0.5 * position.norm(dim=1) + 0.2 * speed.abs())


def make_pilot(seed):
    torch.manual_seed(seed)
    pilot = nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, 2))
    nn.init.zeros_(pilot[2].weight)
    nn.init.zeros_(pilot[2].bias)
    return pilot.requires_grad_(False)


def unflatten(vectors, model):
    """A matrix of flat weight vectors as a dict of stacked weights."""
    stacked, offset = {}, 0
    for name, p in model.named_parameters():
        part = vectors[:, offset : offset + p.numel()]
        stacked[name] = part.reshape(len(vectors), *p.shape)
        offset += p.numel()
    return stacked


def perturbation(seed, generation, pair, size):
    generator = torch.Generator().manual_seed(
        seed * 1_000_003 + generation * 1009 + pair
    )
    return torch.randn(size, generator=generator)


def centred_ranks(returns):
    order = returns.flatten().argsort().argsort().to(torch.float32)
    return (order / (returns.numel() - 1) - 0.5).view_as(returns)


class Strategy:
    def __init__(self, rank, world, options):
        self.rank, self.world, self.options = rank, world, options
        self.pilot = make_pilot(options.seed)
        self.harbour = Harbour(options.horizon)
        self.optimizer = torch.optim.Adam(
            self.pilot.parameters(), lr=options.lr, betas=(0.9, 0.99)
        )
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.98)
        self.size = sum(p.numel() for p in self.pilot.parameters())

    def my_returns(self, centre, noise, generation):
        """Antithetic returns of this process's pairs, on common trips."""
        trips = torch.Generator().manual_seed(self.options.seed * 7919 + generation)
        start = self.harbour.start(self.options.trips, trips)
        mine = noise[self.rank :: self.world]
        candidates = torch.cat(
            [centre + self.options.sigma * mine, centre - self.options.sigma * mine]
        )

        def one(weights):
            def policy(seen):
                return functional_call(self.pilot, weights, (seen,))

            return self.harbour.sail(policy, start).mean()

        returns = vmap(one)(unflatten(candidates, self.pilot))
        return returns.view(2, -1)

    def generation_step(self, generation):
        options = self.options
        noise = torch.stack(
            [
                perturbation(options.seed, generation, pair, self.size)
                for pair in range(options.pairs)
            ]
        )
        centre = parameters_to_vector(self.pilot.parameters())
        mine = self.my_returns(centre, noise, generation)
        gathered = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(gathered, mine)
        returns = torch.empty(2, options.pairs)
        for rank, part in enumerate(gathered):
            returns[:, rank :: self.world] = part
        ranks = centred_ranks(returns)
        weights = ranks[0] - ranks[1]
        search = weights @ noise / (2 * options.pairs * options.sigma)
        descent = options.decay * centre - search
        offset = 0
        for p in self.pilot.parameters():
            p.grad = descent[offset : offset + p.numel()].view_as(p).clone()
            offset += p.numel()
        self.optimizer.step()
        self.schedule.step()
        return returns.mean().item()

    def rate(self, trips=200):
        generator = torch.Generator().manual_seed(self.options.seed + 424242)
        start = self.harbour.start(trips, generator)
        return self.harbour.sail(self.pilot, start).mean().item()

    def same_everywhere(self):
        mine = parameters_to_vector(self.pilot.parameters())
        gathered = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(gathered, mine)
        return all(torch.equal(gathered[0], other) for other in gathered[1:])


@torch.no_grad()
def process(rank, world, options, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=120),
    )
    strategy = Strategy(rank, world, options)
    if rank == 0:
        print(f"untrained pilot {strategy.rate():.3f}", flush=True)
    for generation in range(1, options.generations + 1):
        mean_return = strategy.generation_step(generation)
        if generation % 10 == 0:
            same = strategy.same_everywhere()
            if not same:
                raise RuntimeError("the processes have drifted apart")
            if rank == 0:
                print(
                    f"generation {generation:3d} population {mean_return:.3f} "
                    f"pilot {strategy.rate():.3f}",
                    flush=True,
                )
    if rank == 0:
        torch.save(strategy.pilot.state_dict(), os.path.join(folder, "pilot.pt"))
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--generations", type=int, default=Options.generations)
    parser.add_argument("--pairs", type=int, default=Options.pairs)
    args = parser.parse_args()
    options = Options(args.seed, generations=args.generations, pairs=args.pairs)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(process, args=(2, options, folder), nprocs=2, join=True)
        pilot = make_pilot(options.seed)
        pilot.load_state_dict(torch.load(os.path.join(folder, "pilot.pt")))
        length = parameters_to_vector(pilot.parameters()).norm().item()
        print(f"pilot kept, length of its weights {length:.2f}")


if __name__ == "__main__":
    main()
