"""Duration of freight journeys on two ranks: PowerSGD, then local steps.

A communication hook of torch compresses gradients to rank 2 with error feedback after
some uncompressed steps. For the last third the hook's place is taken by local SGD: the
bare modules are trained apart, and a PeriodicModelAverager takes the mean of the weights
every fourth step and at the end. Rank 0 logs, and tries a batch of its own in between by
extra forwards on the bare module; both ranks hold another part of the validation.
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.algorithms.model_averaging.averagers import (
    PeriodicModelAverager,
)
from torch.nn.parallel import DistributedDataParallel as DDP

STATIONS = 9


class Journey(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.station = nn.Embedding(STATIONS, 12)
        self.net = nn.Sequential(
            nn.Linear(24 + 3, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, route, load):
        return self.net(torch.cat([self.station(route).flatten(1), load], 1)).squeeze(1)


def journeys(n, gen):
    where = torch.rand(STATIONS, 2, generator=torch.Generator().manual_seed(0))
    route = torch.randint(STATIONS, (n, 2), generator=gen)
    load = torch.rand(n, 3, generator=gen)
    away = (where[route[:, 0]] - where[route[:, 1]]).norm(dim=1)
    hours = 4 * away * (1 + 0.5 * load[:, 0]) + load[:, 1] * (route[:, 1] % 3)
    return route, load, hours + 0.1 * torch.randn(n, generator=gen)


def validate(model, data, rank):
    """Mean absolute error over the halves of both ranks."""
    model.eval()
    with torch.no_grad():
        route, load, hours = (t[rank::2] for t in data)
        off = (model(route, load) - hours).abs()
        both = torch.stack([off.sum(), torch.tensor(float(len(off)))])
    model.train()
    dist.all_reduce(both)
    return (both[0] / both[1]).item()


def train(rank, args):
    torch.manual_seed(31)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(100 + rank)
    valid = journeys(600, torch.Generator().manual_seed(5))
    bare = Journey()
    model = DDP(bare)
    state = powersgd.PowerSGDState(
        process_group=None,
        matrix_approximation_rank=2,
        start_powerSGD_iter=10,
        min_compression_rate=1.5,
    )
    model.register_comm_hook(state, powersgd.powerSGD_hook)
    optimizer = torch.optim.Adamax(bare.parameters(), lr=0.02, weight_decay=1e-5)
    alone = args.steps * 2 // 3
    averager = PeriodicModelAverager(period=4, warmup_steps=0)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * (1 - step / args.steps) + 0.0005
        route, load, hours = journeys(64, gen)
        run = model if step < alone else bare
        loss = F.smooth_l1_loss(run(route, load), hours)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= alone:
            averager.average_parameters(bare.parameters())
        if rank == 0 and step % 10 == 5:
            with torch.no_grad():
                again = F.smooth_l1_loss(bare(route, load), hours)
            print(f"step {step:3d} loss {loss.item():.4f} again {again.item():.4f}")
    with torch.no_grad():
        for q in bare.parameters():
            dist.all_reduce(q)
            q /= 2
    off = validate(bare, valid, rank)
    if rank == 0:
        print(f"validation {off:.4f}", flush=True)


def start(rank, port, args):
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    train(rank, args)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=120)
    args = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(start, (port, args), nprocs=2)
