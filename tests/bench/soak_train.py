"""Two data-parallel ranks that train at a steady pace for a given time.

    python soak_train.py --seconds 3600 --rate 20
"""

import argparse
import os
import socket
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(8, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return self.last(torch.tanh(self.second(x)))


def time_is_up(end):
    """Decided by rank 0, so that all ranks stop after the same step."""
    flag = torch.tensor([int(time.monotonic() >= end)])
    torch.distributed.broadcast(flag, 0)
    return bool(flag.item())


def train(rank, options):
    torch.manual_seed(5)
    net = DistributedDataParallel(Net(options.width))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    # Another rate in each step: what is kept of each would show in an hour. Half
    # of the cosine: a rate near 0 would change nothing.
    steps = int(options.seconds * options.rate) + 1
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * steps)
    generator = torch.Generator().manual_seed(100 + rank)
    start = time.monotonic()
    step = 0
    while step % options.rate or not time_is_up(start + options.seconds):
        x = torch.randn(32, 8, generator=generator)
        loss = nn.functional.mse_loss(net(x), x.prod(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        step += 1
        time.sleep(max(0.0, start + step / options.rate - time.monotonic()))
    if rank == 0:
        print(f"{step} steps, loss {loss.item():.5f}", flush=True)


def worker(rank, port, options):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    train(rank, options)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--seconds", type=float, default=10)
    cli.add_argument("--rate", type=int, default=20, help="steps a second, at most")
    cli.add_argument("--width", type=int, default=32)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(free_port, cli.parse_args()), nprocs=2)
