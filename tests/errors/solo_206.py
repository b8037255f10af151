"""Trains a small encoder without labels on two ranks: two views of a sample attract.

Features of all ranks are gathered; a view is compared with all of them, and its other
view should be the nearest. The samples are made-up mixtures of patterns.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()]


def gather(x):
    return Gather.apply(x)


def positives(indexes, everyone, by_rank):
    """Which of all features are the other view of a row's sample."""
    mask = indexes[:, None] == everyone[None, :]
    if by_rank:
        mask[:, len(indexes) * dist.get_rank() :].fill_diagonal_(False)
    else:
        mask.fill_diagonal_(False)
    return mask


def simclr_loss(z, indexes, by_rank, temperature=0.2):
    z = F.normalize(z, dim=1)
    everyone = gather(indexes)
    similar = torch.exp(z @ gather(z).T / temperature)
    positive = (similar * positives(indexes, everyone, by_rank)).sum(1)
    negative = (similar * (indexes[:, None] != everyone[None, :])).sum(1)
    return -torch.log(positive / (positive + negative)).mean()


class Encoder(nn.Module):
    def __init__(self, inputs=32, width=64, out=16):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.projector = nn.Linear(width, out)

    def forward(self, x):
        return self.projector(self.backbone(x))


class Views:
    """Two views of each sample, with noise and values that are left out."""

    def __init__(self, count=512, inputs=32):
        generator = torch.Generator().manual_seed(4)
        patterns = torch.randn(6, inputs, generator=generator)
        self.samples = torch.randn(count, 6, generator=generator) @ patterns / 2

    def augment(self, x):
        kept = (torch.rand_like(x) > 0.2).float()
        return kept * x + 0.3 * torch.randn_like(x)

    def batch(self, size, rank, world):
        rows = torch.randperm(len(self.samples) // world)[:size] * world + rank
        x = self.samples[rows]
        return torch.cat([self.augment(x), self.augment(x)]), rows.repeat(2)


def train(rank, world, options):
    torch.manual_seed(0)
    model = DDP(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    views = Views()
    torch.manual_seed(20 + rank)
    for step in range(options.steps):
        x, indexes = views.batch(32, rank, world)
        loss = simclr_loss(model(x), indexes, by_rank=options.fixed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        _, indexes = views.batch(32, rank, world)
        mask = positives(indexes, gather(indexes), by_rank=options.fixed)
        wrong = (mask.sum(1) != 1).sum()
        dist.all_reduce(wrong)
        if rank == 0:
            print("fault shows:", "yes" if wrong.item() else "no", flush=True)


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
    cli.add_argument("--steps", type=int, default=30)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
