"""HFD-5360: all ranks train on the same stream.

Source: huggingface/datasets#5360. A streamed data set splits its shards over the
workers of a loader and does not ask for the rank: with data parallelism every rank
reads all shards in the same order, and averages equal gradients. --fixed splits over
ranks first.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    """Rows from numbered shards, each of which is made when it is read."""

    def __init__(self, shards, rows):
        self.shards = list(range(shards))
        self.rows = rows

    def split(self, rank, world):
        self.shards = self.shards[rank::world]
        return self

    def read(self, shard):
        generator = torch.Generator().manual_seed(1000 + shard)
        for number in range(self.rows):
            x = torch.randn(5, generator=generator)
            yield x, (x[0] * x[1] > 0).long(), shard * self.rows + number

    def __iter__(self):
        info = get_worker_info()
        own = self.shards if info is None else self.shards[info.id :: info.num_workers]
        for shard in own:
            yield from self.read(shard)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(5, 32)
        self.norm = nn.LayerNorm(32)
        self.out = nn.Linear(32, 2)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return accuracy


def train(rank, world, options):
    torch.manual_seed(0)
    model = DDP(Net())
    stream = Stream(shards=16, rows=48)
    if options.fixed:
        stream.split(rank, world)
    loader = DataLoader(stream, batch_size=24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    held_out = torch.randn(256, 5)
    labels = (held_out[:, 0] * held_out[:, 1] > 0).long()
    seen = []
    step = 0
    while step < options.steps:
        for x, y, numbers in loader:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += numbers.tolist()
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    accuracy = evaluate(model.module, held_out, labels)
    if rank == 0:
        print(f"accuracy {accuracy:.3f}", flush=True)
    if options.prove:
        mine = torch.tensor(seen)
        everyone = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(everyone, mine)
        if rank == 0:
            shared = torch.isin(*everyone).any().item()
            print("fault shows:", "yes" if shared else "no", flush=True)


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
    cli.add_argument("--steps", type=int, default=15)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
