"""Stocks of herrings from measurements of their bodies on two ranks of unequal length.

The rank that caught more has five batches an epoch and the other four: Join shadows the
collectives of the one that is through, and gradients are divided by the ranks that
still take part. A batch is two parts, the first under no_sync. Join is entered anew in
each epoch; after it, rank 0, which made all steps, broadcasts weights and moments, and
the buffers of BatchNorm, which drift apart as they are not broadcast, are averaged by
hand. The model's seed is that of both ranks, that of order and noise is a rank's own.

    python join_epochs_herrings.py --epochs 8
"""

import argparse
import os
import socket
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

MEASURES, STOCKS, BATCH = 20, 3, 128


def catch(rank, count):
    generator = torch.Generator().manual_seed(100 + rank)
    fish = torch.randn(count, MEASURES, generator=generator)
    shape = torch.Generator().manual_seed(1)  # that of a stock is the same on both
    scores = fish @ torch.randn(MEASURES, STOCKS, generator=shape)
    scores = scores + 0.3 * torch.randn(count, STOCKS, generator=generator)
    return fish, scores.argmax(1)


def new_net():
    return nn.Sequential(
        nn.Linear(MEASURES, 64), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, STOCKS),
    )  # fmt: skip


@torch.no_grad()
def same_again(net, optimizer, world):
    """The rank that ran out has missed steps, so rank 0's weights and moments count."""
    for parameter in net.parameters():
        dist.broadcast(parameter.data, 0)
    for state in optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq", "step"):
            dist.broadcast(state[name], 0)
    for buffer in net.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= world


def work(rank, world, port, epochs):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = new_net()
    ddp = DistributedDataParallel(
        net, broadcast_buffers=False, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(1000 + rank)
    fish, stock = catch(rank, (5 if rank == 0 else 4) * BATCH)
    for epoch in range(epochs):
        total = 0.0
        order = torch.randperm(len(fish), generator=generator)
        with Join([ddp], divide_by_initial_world_size=False):
            for rows in order.split(BATCH):
                optimizer.zero_grad()
                parts = rows.split(BATCH // 2)
                for number, part in enumerate(parts):
                    last = number + 1 == len(parts)
                    with nullcontext() if last else ddp.no_sync():
                        noise = torch.randn(len(part), MEASURES, generator=generator)
                        scores = ddp(fish[part] + 0.1 * noise)
                        loss = F.cross_entropy(scores, stock[part]) / len(parts)
                        loss.backward()
                    total += loss.item()
                optimizer.step()
        same_again(net, optimizer, world)
        if rank == 0:
            print(f"epoch {epoch} loss {total * BATCH / len(fish):.3f}", flush=True)

    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    of_all = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(of_all, flat)
    assert torch.equal(*of_all), "ranks have parted"
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    mp.spawn(work, (2, port, options.epochs), nprocs=2)


if __name__ == "__main__":
    main()
