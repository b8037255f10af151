"""An MLP-Mixer under DistributedDataParallel: gloo, a DistributedSampler, a warm-up
before the cosine, an all-reduced accuracy, rank 0 prints and saves.

    python mixer_ddp.py --steps 60
    torchrun --nproc-per-node 2 mixer_ddp.py
"""

import argparse
import os
import socket
import tempfile
import time

import torch
from torch import nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from ranks import leave_group

CLASSES = 8


class MixerLayer(nn.Module):
    def __init__(self, patches, size):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.across = nn.Sequential(
            nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches)
        )
        self.within = nn.Sequential(
            nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)
        )

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class PatchMixer(nn.Module):
    def __init__(self, size, depth):
        super().__init__()
        self.stem = nn.Conv2d(3, size, 4, stride=4)
        self.layers = nn.ModuleList(MixerLayer(64, size) for _ in range(depth))
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, CLASSES)

    def forward(self, images):
        x = self.stem(images).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class Checkers(Dataset):
    """Checkerboards, of as many sizes as there are classes, from index and seed."""

    def __init__(self, size, seed):
        self.size, self.seed = size, seed

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed * 100_003 + index)
        label = int(torch.randint(CLASSES, (), generator=generator))
        at = torch.arange(32) // (label + 1)
        board = (at[:, None] + at) % 2
        return board + 0.5 * torch.randn(3, 32, 32, generator=generator), label


def evaluate(model, loader):
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for images, labels in loader:
            counts[0] += (model(images).argmax(1) == labels).sum()
            counts[1] += len(labels)
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


def train(rank, options):
    torch.manual_seed(options.seed)
    net = PatchMixer(options.size, 4)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    warm = max(1, options.steps // 6)
    scheduler = SequentialLR(
        optimizer,
        [
            LinearLR(optimizer, start_factor=0.1, total_iters=warm),
            CosineAnnealingLR(optimizer, T_max=max(1, options.steps - warm)),
        ],
        milestones=[warm],
    )
    data = Checkers(40 * options.batch_size * dist.get_world_size(), options.seed)
    sampler = DistributedSampler(data, seed=options.seed)
    loader = DataLoader(data, batch_size=options.batch_size, sampler=sampler)
    held = Checkers(64, options.seed + 1)
    held_loader = DataLoader(held, 32, sampler=DistributedSampler(held, shuffle=False))
    step, epoch, times = 0, 0, [time.perf_counter()]
    while step < options.steps:
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            if rank == 0:
                print(f"step {step} loss {loss.item().hex()}", flush=True)
            times.append(time.perf_counter())
            step += 1
            if step == options.steps:
                break
        epoch += 1
        reached = evaluate(net, held_loader)
        if rank == 0:
            print(f"accuracy {reached:.4f}", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                torch.save(net.state_dict(), os.path.join(folder, "mixer.pt"))
        dist.barrier()
    return times


def run(rank, world, options):
    os.environ.setdefault("RANK", str(rank))
    os.environ.setdefault("WORLD_SIZE", str(world))
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    times = train(rank, options)
    leave_group()
    if options.times and rank == 0:
        with open(options.times, "w") as file:
            file.writelines(f"{moment!r}\n" for moment in times)


def main(options):
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), options)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(free.getsockname()[1])
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    mp.spawn(run, args=(options.nproc, options), nprocs=options.nproc)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
