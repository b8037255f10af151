"""From which of five quarries a stone is (MLP) on two ranks: post-local SGD.

For the first 12 steps gradients are averaged by the communication hook, afterwards
within a group of one rank only: the ranks differ on purpose, and PostLocalSGDOptimizer
averages the parameters at each fourth step instead, never the momentum. They are
averaged once more before the evaluation.

    python post_local_sgd_quarries.py --epochs 6
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MINERALS, QUARRIES, WARM = 10, 5, 12


def stones(count, seed):
    generator = torch.Generator().manual_seed(seed)
    stone = torch.randn(count, MINERALS, generator=generator)
    generator = torch.Generator().manual_seed(1)
    veins = torch.randn(MINERALS, QUARRIES, generator=generator)
    return TensorDataset(stone, (stone @ veins).abs().argmax(1))


def new_net():
    return nn.Sequential(
        nn.Linear(MINERALS, 64), nn.LayerNorm(64), nn.ReLU(),
        nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, QUARRIES),
    )  # fmt: skip


def work(rank, world, port, epochs):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = new_net()
    ddp = DistributedDataParallel(net)
    alone = [dist.new_group([member]) for member in range(world)][rank]
    ddp.register_comm_hook(
        post_localSGD_hook.PostLocalSGDState(None, alone, start_localSGD_iter=WARM),
        post_localSGD_hook.post_localSGD_hook,
    )
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9),
        averagers.PeriodicModelAverager(period=4, warmup_steps=WARM),
    )
    rows = stones(1024, 5)
    sampler = DistributedSampler(rows, world, rank, shuffle=True)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        loader = DataLoader(rows, 64, sampler=sampler)
        total = 0.0
        for stone, quarry in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(stone), quarry)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"epoch {epoch} loss {total / len(loader):.3f}", flush=True)
    with torch.no_grad():
        for parameter in net.parameters():
            dist.all_reduce(parameter)
            parameter /= world
        stone, quarry = stones(400, 6).tensors
        right = (net(stone).argmax(1) == quarry).float().mean().item()
    if rank == 0:
        print(f"accuracy {right:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    mp.spawn(work, (2, port, options.epochs), nprocs=2)


if __name__ == "__main__":
    main()
