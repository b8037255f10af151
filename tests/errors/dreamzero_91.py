"""Behaviour cloning of action chunks from a sharded trajectory store, two ranks.

Shards are small groups of trajectories. All ranks walk through one shard schedule and
draw steps from the shard that is loaded at the moment.
"""

import argparse
import json
import logging
import os
import tempfile
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

STATE_DIM, ACTION_DIM, CHUNK = 10, 4, 6


@dataclass
class TrainConfig:
    world_size: int = 2
    num_trajectories: int = 24
    trajectory_length: int = 40
    shard_size: int = 240
    shard_sampling_rate: float = 0.4
    schedule_length: int = 36
    batch_size: int = 12
    hidden: int = 96
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    log_every: int = 50
    seed: int = 0
    fixed: bool = False


def expert(state, goal):
    pull = np.tanh(1.5 * (goal - state[:ACTION_DIM]))
    swirl = 0.4 * np.sin(2.0 * state[ACTION_DIM : 2 * ACTION_DIM])
    return pull + swirl


def roll_out(rng, length):
    state = rng.normal(0, 1, STATE_DIM)
    goal = rng.normal(0, 1, ACTION_DIM)
    state[-2:] = goal[:2]
    states, actions = [], []
    for _ in range(length + CHUNK):
        action = expert(state, goal) + rng.normal(0, 0.05, ACTION_DIM)
        states.append(state.copy())
        actions.append(action)
        state[:ACTION_DIM] += 0.15 * action
        state[ACTION_DIM : 2 * ACTION_DIM] += rng.normal(0, 0.1, ACTION_DIM)
    return np.array(states, np.float32), np.array(actions, np.float32)


class TrajectoryStore:
    """All trajectories of one embodiment, with statistics for normalization."""

    def __init__(self, count, length, seed):
        rng = np.random.default_rng(seed)
        self.length = length
        self.trajectories = [roll_out(rng, length) for _ in range(count)]
        states = np.concatenate([s for s, _ in self.trajectories])
        self.mean, self.std = states.mean(0), states.std(0) + 1e-6

    def step(self, trajectory, base):
        states, actions = self.trajectories[trajectory]
        return {
            "state": (states[base] - self.mean) / self.std,
            "actions": actions[base : base + CHUNK],
            "index": trajectory * self.length + base,
        }

    def all_steps(self):
        return [
            (t, s) for t in range(len(self.trajectories)) for s in range(self.length)
        ]


class ShardedActionChunkDataset(IterableDataset):
    def __init__(self, store, cfg, rank, world_size, worker_id=0, num_workers=1):
        self.store, self.cfg = store, cfg
        self.rank, self.world_size = rank, world_size
        self.worker_id, self.num_workers = worker_id, num_workers
        self.seed = cfg.seed
        self.shards = self.generate_shards()
        self.schedule = self.generate_shards_sample_schedule()

    def generate_shards(self):
        steps = self.store.all_steps()
        size = self.cfg.shard_size
        return [steps[i : i + size] for i in range(0, len(steps), size)]

    def generate_shards_sample_schedule(self):
        rng = np.random.default_rng(self.seed)
        weights = np.array([len(shard) for shard in self.shards], float)
        return rng.choice(
            len(self.shards), self.cfg.schedule_length, p=weights / weights.sum()
        )

    def stream_seed(self):
        if self.cfg.fixed:
            stream = self.rank * self.num_workers + self.worker_id
            return self.seed + 100003 * stream
        return self.seed

    def __len__(self):
        taken = [self.take(len(self.shards[i])) for i in self.schedule]
        return sum(taken)

    def take(self, length):
        return int(length * self.cfg.shard_sampling_rate)

    def __iter__(self):
        rng = np.random.default_rng(self.stream_seed())
        for shard_index in self.schedule:
            shard = self.shards[shard_index]
            order = rng.permutation(len(shard))[: self.take(len(shard))]
            for position in order:
                yield self.store.step(*shard[position])


class ActionHead(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(STATE_DIM, hidden),
            nn.LayerNorm(hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
        )
        self.out = nn.Linear(hidden, CHUNK * ACTION_DIM)

    def forward(self, state):
        return self.out(self.trunk(state)).unflatten(-1, (CHUNK, ACTION_DIM))


@torch.no_grad()
def evaluate(model, store):
    model.eval()
    rows = [store.step(t, s) for t, s in store.all_steps()]
    states = torch.tensor(np.stack([r["state"] for r in rows]))
    actions = torch.tensor(np.stack([r["actions"] for r in rows]))
    loss = F.smooth_l1_loss(model(states), actions).item()
    model.train()
    return loss


def gather_indices(index, world_size):
    parts = [torch.empty_like(index) for _ in range(world_size)]
    dist.all_gather(parts, index)
    return torch.cat(parts)


def run(rank, cfg, folder):
    torch.set_num_threads(1)
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING, format="%(message)s"
    )
    log = logging.getLogger("train")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=cfg.world_size,
    )
    torch.manual_seed(cfg.seed)
    store = TrajectoryStore(cfg.num_trajectories, cfg.trajectory_length, cfg.seed)
    held_out = TrajectoryStore(10, cfg.trajectory_length, cfg.seed + 999)
    held_out.mean, held_out.std = store.mean, store.std
    dataset = ShardedActionChunkDataset(store, cfg, rank, cfg.world_size)
    loader = DataLoader(dataset, batch_size=cfg.batch_size, drop_last=True)

    model = DDP(ActionHead(cfg.hidden))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=cfg.learning_rate, weight_decay=cfg.weight_decay
    )
    total = len(dataset) // cfg.batch_size
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    distinct, running = [], 0.0
    for step, batch in enumerate(loader):
        loss = F.smooth_l1_loss(model(batch["state"]), batch["actions"])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running += loss.item()
        index = gather_indices(batch["index"], cfg.world_size)
        distinct.append(len(index.unique()) / len(index))
        if (step + 1) % cfg.log_every == 0:
            log.info(
                "step %4d  loss %.4f  lr %.2e",
                step + 1,
                running / cfg.log_every,
                scheduler.get_last_lr()[0],
            )
            running = 0.0
    result = {
        "steps": step + 1,
        "distinct_per_global_batch": round(float(np.mean(distinct)), 4),
        "train_set_loss": round(evaluate(model.module, store), 5),
        "held_out_loss": round(evaluate(model.module, held_out), 5),
    }
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(folder, "policy.pt"))
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(asdict(cfg), f)
        log.info("%s", result)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    cfg = TrainConfig(seed=args.seed, fixed=args.fixed)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(cfg, folder), nprocs=cfg.world_size)


if __name__ == "__main__":
    main()
