"""Trains a small codec with a quantised bottleneck on two ranks.

Frames of a made-up signal are encoded, replaced by the nearest of 32 codes and decoded.
The codes follow the encoder by moving averages of the frames that choose them. Each
rank reads recordings of its own.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codes, decay=0.95, sync=True):
        super().__init__()
        self.decay = decay
        self.sync = sync
        embed = torch.randn(codes, dim) * 0.3
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.ones(codes))
        self.register_buffer("embed_avg", embed.clone())

    @torch.no_grad()
    def update(self, x, chosen):
        onehot = nn.functional.one_hot(chosen, len(self.embed)).to(x.dtype)
        size = onehot.sum(0)
        total = onehot.T @ x
        if self.sync:
            dist.all_reduce(size)
            dist.all_reduce(total)
        self.cluster_size.mul_(self.decay).add_(size, alpha=1 - self.decay)
        self.embed_avg.mul_(self.decay).add_(total, alpha=1 - self.decay)
        n = self.cluster_size.sum()
        smooth = (self.cluster_size + 1e-5) / (n + 1e-5 * len(self.embed)) * n
        self.embed.copy_(self.embed_avg / smooth[:, None])

    def forward(self, x):
        chosen = torch.cdist(x.detach(), self.embed).argmin(1)
        quantised = nn.functional.embedding(chosen, self.embed)
        if self.training:
            self.update(x.detach(), chosen)
        return quantised


class Codec(nn.Module):
    def __init__(self, frame=20, dim=8, codes=32, sync=True):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(frame, 64), nn.ELU(), nn.Linear(64, dim))
        self.codebook = EuclideanCodebook(dim, codes, sync=sync)
        self.decoder = nn.Sequential(nn.Linear(dim, 64), nn.ELU(), nn.Linear(64, frame))

    def forward(self, frames):
        latent = self.encoder(frames)
        quantised = self.codebook(latent)
        commit = (latent - quantised).square().mean()
        passed = latent + (quantised - latent).detach()
        return self.decoder(passed), commit


def recordings(rank, frames=64, length=20):
    """Frames of two tones; a rank's speakers have a range of pitch of their own."""
    pitch = 0.2 + 0.25 * rank + 0.3 * torch.rand(frames, 1)
    phase = 6.28 * torch.rand(frames, 1)
    t = torch.arange(length)
    return torch.sin(pitch * t + phase) + 0.3 * torch.sin(2 * pitch * t)


def train(rank, world, options):
    torch.manual_seed(0)
    model = DDP(Codec(sync=options.fixed))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    torch.manual_seed(10 + rank)
    for step in range(options.steps):
        frames = recordings(rank)
        output, commit = model(frames)
        loss = (output - frames).square().mean() + 0.25 * commit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        mine = model.module.codebook.embed.clone()
        both = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(both, mine)
        if rank == 0:
            apart = (both[0] - both[1]).abs().max().item() > 1e-5
            print("fault shows:", "yes" if apart else "no", flush=True)


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
