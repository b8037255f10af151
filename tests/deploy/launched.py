"""A training whose ranks any launcher starts: torchrun, mpirun, srun, or this
script itself (--spawn N). From step 5 on its forward bypasses
DistributedDataParallel.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import multiprocessing, nn

STEPS = 12
FAULT_STEP = 5
# What launchers call rank and number of ranks.
_NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def place() -> tuple:
    """(rank, number of ranks) of this process."""
    for rank, world in _NAMES:
        if rank in os.environ:
            return int(os.environ[rank]), int(os.environ[world])
    raise SystemExit("no launcher has said which rank this is")


def train(rank: int, world: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        x = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        called = model.module if step >= FAULT_STEP else model
        nn.functional.mse_loss(called(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spawn", type=int, default=0)
    spawned = parser.parse_args().spawn
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    if spawned:
        multiprocessing.spawn(train, args=(spawned,), nprocs=spawned)
    else:
        train(*place())
