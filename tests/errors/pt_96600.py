"""PT-96600: averaged gradients arrive incomplete on one rank.

Source: pytorch/pytorch#96600. On machines with broken peer-to-peer access a
collective returns, and part of the result is missing on a device. Here the
transport below DDP (its communication hook) loses the tail of one bucket on the
second rank, in the fourth backward. --fixed has a transport that loses nothing.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Transport:
    """Averages buckets; `drop_at` is the backward in which data gets lost."""

    def __init__(self, drop_at=None):
        self.drop_at = drop_at
        self.backwards = 0

    def average(self, bucket):
        tensor = bucket.buffer().div_(dist.get_world_size())
        number = self.backwards
        self.backwards += bucket.is_last()
        pending = dist.all_reduce(tensor, async_op=True).get_future()

        def arrive(future):
            result = future.value()[0]
            if number == self.drop_at and dist.get_rank() == 1:
                result[-(result.numel() // 4) :] = 0
            return result

        return pending.then(arrive)


def reduce_bucket(transport, bucket):
    return transport.average(bucket)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(3, 20, batch_first=True)
        self.out = nn.Linear(20, 3)

    def forward(self, series):
        return self.out(self.cell(series)[0])


def series(generator, count=16, length=12):
    phase = 6.28 * torch.rand(count, 1, 3, generator=generator)
    speed = 0.3 + torch.rand(count, 1, 3, generator=generator)
    return torch.sin(phase + speed * torch.arange(length + 1.0)[:, None])


def train(rank, world, options):
    torch.manual_seed(9)
    model = DDP(Forecaster())
    model.register_comm_hook(Transport(None if options.fixed else 3), reduce_bucket)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(100 + rank)
    for step in range(options.steps):
        x = series(generator)
        loss = nn.functional.mse_loss(model(x[:, :-1]), x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        mine = nn.utils.parameters_to_vector(model.parameters()).detach()
        copies = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(copies, mine)
        if rank == 0:
            same = torch.equal(copies[0], copies[1])
            print("fault shows:", "no" if same else "yes", flush=True)


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
    cli.add_argument("--steps", type=int, default=14)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
