"""LTX-67: the learning rate is at its end when half of the run is done.

Source: Lightricks/LTX-Video-Trainer#67 (also huggingface/diffusers#3954). The
accelerator's scheduler takes one step for each process whenever it is stepped, and
the schedule is built for the number of optimizer steps: with two processes it runs
out in half of them. --fixed builds it for as many steps as will be taken.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class AcceleratedScheduler:
    """Steps a scheduler as often as there are processes: as many batches were seen."""

    def __init__(self, scheduler, split_batches=False):
        self.scheduler = scheduler
        self.split_batches = split_batches

    def step(self):
        for _ in range(1 if self.split_batches else dist.get_world_size()):
            self.scheduler.step()


class Flow(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(size + 1, 40), nn.SiLU(), nn.Linear(40, size)
        )

    def forward(self, x, t):
        return self.layers(torch.cat([x, t], 1))


def videos(generator, count=24):
    speed = torch.rand(count, 1, generator=generator)
    return torch.cos(6.28 * speed + speed * torch.arange(8))


def train(rank, world, options):
    torch.manual_seed(0)
    model = DDP(Flow())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    total = options.steps * world if options.fixed else options.steps
    scheduler = AcceleratedScheduler(
        torch.optim.lr_scheduler.LinearLR(
            optimizer, start_factor=1.0, end_factor=0.05, total_iters=total
        )
    )
    generator = torch.Generator().manual_seed(80 + rank)
    rates = []
    for step in range(options.steps):
        clean = videos(generator)
        noise = torch.randn(clean.shape, generator=generator)
        t = torch.rand(len(clean), 1, generator=generator)
        target = noise - clean
        loss = nn.functional.mse_loss(model(clean + t * target, t), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove and rank == 0:
        middle = rates[len(rates) // 2]
        early = middle < 0.01 * 0.1
        print("fault shows:", "yes" if early else "no", flush=True)


def worker(rank, world, port, options):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    train(rank, world, options)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=16)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
