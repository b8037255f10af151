"""LIGHTLY-1528: gathered features give back only the own rank's gradient.

Source: lightly-ai/lightly#1528 (related: cellarium-ai/cellarium-ml#184). Each rank
compares its views with those of all ranks. The backward of the gather takes the
rank's own slice and does not add what the losses of the other ranks say of the same
features: the gradient is not that of the whole batch. --fixed sums it first.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

SUM_GRADIENTS = False


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features):
        parts = [torch.empty_like(features) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, features.contiguous())
        return tuple(parts)

    @staticmethod
    def backward(ctx, *gradients):
        stacked = torch.stack(gradients)
        if SUM_GRADIENTS:
            dist.all_reduce(stacked)
        return stacked[dist.get_rank()]


class Projector(nn.Module):
    def __init__(self, inputs=16, width=32, outputs=8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs)
        )

    def forward(self, x):
        return F.normalize(self.layers(x), dim=1)


def contrast(anchors, others, first, temperature=0.2):
    """Row i belongs to the column first + i."""
    labels = first + torch.arange(len(anchors))
    return F.cross_entropy(anchors @ others.T / temperature, labels)


def views(step, world, count=8, inputs=16):
    """Two noisy views of each sample, for all ranks."""
    generator = torch.Generator().manual_seed(step)
    base = torch.randn(world * count, inputs, generator=generator)
    noise = torch.randn(2, world * count, inputs, generator=generator)
    return base + 0.5 * noise


def whole_batch_gradient(model, pair):
    z0, z1 = model(pair[0]), model(pair[1])
    loss = (contrast(z0, z1, 0) + contrast(z1, z0, 0)) / 2
    return torch.autograd.grad(loss, list(model.parameters()))


def train(rank, world, options):
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Projector())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.3, momentum=0.9)
    distance = 0.0
    for step in range(options.steps):
        pair = views(step, world)
        wanted = whole_batch_gradient(ddp.module, pair) if options.prove else ()
        mine = pair.chunk(world, dim=1)[rank]
        z0, z1 = ddp(mine.flatten(0, 1)).chunk(2)
        all0, all1 = (torch.cat(GatherLayer.apply(z)) for z in (z0, z1))
        first = rank * len(z0)
        loss = (contrast(z0, all1, first) + contrast(z1, all0, first)) / 2
        optimizer.zero_grad()
        loss.backward()
        for gradient, parameter in zip(wanted, ddp.parameters()):
            away = (gradient - parameter.grad).norm() / gradient.norm()
            distance = max(distance, away.item())
        optimizer.step()
        shown = loss.detach() / world
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step {step} loss {shown.item():.4f}", flush=True)
    if options.prove and rank == 0:
        print("fault shows:", "yes" if distance > 1e-2 else "no", flush=True)


def worker(rank, world, port, options):
    global SUM_GRADIENTS
    SUM_GRADIENTS = options.fixed
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
