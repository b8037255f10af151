"""A healthy training under DistributedDataParallel, as fast as it goes, until a
file is there; then ten steps past the wrapper, as in drift_ddp.py, and the end.

Rank 0 looks for the file and tells the others, so that all err in the same step,
which it prints.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import drift_ddp

FAULTY_STEPS = 10


def agreed(wanted: bool) -> bool:
    """What rank 0 wants."""
    flag = torch.tensor([int(wanted)])
    dist.broadcast(flag, 0)
    return bool(flag.item())


def train_step(forward, optimizer, shard):
    x, y = shard.draw()
    optimizer.zero_grad()
    nn.functional.mse_loss(forward(x), y).backward()
    optimizer.step()


def train(rank, args):
    torch.manual_seed(0)
    model = DistributedDataParallel(drift_ddp.Regressor("hidden", 24, args.depth))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    shard = drift_ddp.Shard(rank, seed=0, batch_size=16)
    step = 0
    while not agreed(os.path.exists(args.until)):
        train_step(model, optimizer, shard)
        step += 1
    if rank == 0:
        print(f"fault from step {step}", flush=True)
    for _ in range(FAULTY_STEPS):
        train_step(model.module, optimizer, shard)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--until", required=True, help="the file")
    parser.add_argument("--depth", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank(), args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
