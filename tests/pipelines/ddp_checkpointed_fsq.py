"""Outlines of stones through a bottleneck of a few integers (finite scalar quantisation), DDP.

Rounding is passed straight through. The blocks are recomputed in backward, which DDP is told
by a static graph; gradients are views of the buckets and travel as bfloat16; each rank keeps
half of Adam's state. Both ranks evaluate half of the validation set with the bare module.
"""
import argparse
import math
import os
import socket

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RAYS, LEVELS = 48, (7, 7, 5, 5)


def stones(n, seed):
    """Radii along 48 rays; round, long or three-cornered, all turned at random."""
    gen = torch.Generator().manual_seed(seed)
    phi = 2 * math.pi * (torch.arange(RAYS) / RAYS + torch.rand(n, 1, generator=gen))
    lobes = torch.randint(1, 4, (n, 1), generator=gen)
    depth = 0.15 + 0.25 * torch.rand(n, 1, generator=gen)
    return (
        1 + depth * torch.cos(lobes * phi) + 0.02 * torch.randn(n, RAYS, generator=gen)
    )


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        return x + self.net(x)


class FSQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer(
            "reach", (torch.tensor(LEVELS).float() - 1) / 2, persistent=False
        )

    def forward(self, z):
        z = torch.tanh(z) * self.reach
        return (z + (z.round() - z).detach()) / self.reach


class Autoencoder(nn.Module):
    def __init__(self, width=64, depth=2):
        super().__init__()
        self.read = nn.Linear(RAYS, width)
        self.down = nn.ModuleList(Residual(width) for _ in range(depth))
        self.to_code, self.fsq, self.from_code = (
            nn.Linear(width, len(LEVELS)),
            FSQ(),
            nn.Linear(len(LEVELS), width),
        )
        self.up = nn.ModuleList(Residual(width) for _ in range(depth))
        self.write = nn.Linear(width, RAYS)
        nn.init.constant_(self.write.bias, 1.0)  # a round stone

    def through(self, blocks, x):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return x

    def encode(self, radii):
        return self.fsq(self.to_code(self.through(self.down, self.read(radii - 1))))

    def forward(self, radii):
        return self.write(self.through(self.up, self.from_code(self.encode(radii))))


def half_the_traffic(group, bucket):
    """The mean of the ranks' gradients, sent as bfloat16."""
    small = bucket.buffer().bfloat16().div_(dist.get_world_size(group))
    future = dist.all_reduce(small, group=group, async_op=True).get_future()
    return future.then(lambda f: bucket.buffer().copy_(f.value()[0]))


@torch.no_grad()
def evaluate(bare, mine):
    """Sums of both ranks; no DDP, which has nothing to do without gradients."""
    bare.eval()
    codes = bare.encode(mine)
    words = (codes * bare.fsq.reach).round().long() + bare.fsq.reach.long()
    index = torch.zeros(len(mine), dtype=torch.long)
    for d, levels in enumerate(LEVELS):
        index = index * levels + words[:, d]
    used = torch.bincount(index, minlength=math.prod(LEVELS))
    total = torch.stack(
        [
            F.mse_loss(bare(mine), mine, reduction="sum"),
            torch.tensor(float(mine.numel())),
        ]
    )
    dist.all_reduce(total)
    dist.all_reduce(used)
    bare.train()
    return (total[0] / total[1]).item(), int((used > 0).sum())


def train(args):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(9)
    dataset = TensorDataset(stones(1280, seed=90))
    valid = stones(400, seed=91)[rank::world]
    sampler = DistributedSampler(dataset, shuffle=True, seed=92)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, drop_last=True)

    bare = Autoencoder()
    model = DDP(bare, static_graph=True, gradient_as_bucket_view=True)
    model.register_comm_hook(None, half_the_traffic)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, lr=4e-3, weight_decay=0.01
    )
    step = epoch = 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for (x,) in loader:
            for g in optimizer.param_groups:
                g["lr"] = 4e-3 * min(1.0, (step + 1) / 10) * (1 - step / args.steps)
            loss = F.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 10 == 0 or step == args.steps:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                error, used = evaluate(bare, valid)
                if rank == 0:
                    print(
                        f"step {step:3d} loss {mean.item() / world:.5f} valid {error:.5f} codes used {used}",
                        flush=True,
                    )
            if step == args.steps:
                break
        epoch += 1


def start(rank, world, port, args):
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    train(args)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=50)
    args = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(start, (2, port, args), nprocs=2)
