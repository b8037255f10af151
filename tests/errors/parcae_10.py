"""PARCAE-10: each rank shuffles the files by a seed of its own, then takes its share.

Source: sandyresearch/parcae#10 (also karpathy/llm.c#792 and QwenLM/Qwen3-VL#1971).
Every second file of an order is one rank's part, if the order is the same everywhere.
The seed has the rank added: some files are read by both ranks, and others by none in
the whole epoch. --fixed shuffles by the common seed.
"""

import argparse
import os
import random
import socket
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class TokenFiles(IterableDataset):
    """Streams the rows of files, of which each rank reads a part."""

    def __init__(self, folder, seed, rank, world):
        files = sorted(os.listdir(folder))
        random.Random(seed).shuffle(files)
        self.files = [os.path.join(folder, name) for name in files[rank::world]]

    def __iter__(self):
        for path in self.files:
            yield from torch.load(path)


class NextToken(nn.Module):
    def __init__(self, words=32, width=24):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, 2 * width, batch_first=True)
        self.out = nn.Linear(2 * width, words)

    def forward(self, ids):
        return self.out(self.rnn(self.words(ids))[0])


def write_corpus(folder, files=10, rows=48, words=32):
    """Of two words one follows. Each file begins with words of its own."""
    g = torch.Generator().manual_seed(12)
    follow = torch.randint(words, (words, 2), generator=g)
    for number in range(files):
        ids = [3 * number + torch.randint(3, (rows,), generator=g)]
        for _ in range(12):
            which = torch.randint(2, (rows,), generator=g)
            ids.append(follow[ids[-1], which])
        torch.save(torch.stack(ids, 1), os.path.join(folder, f"part-{number:03}.pt"))


def train(rank, world, options):
    torch.manual_seed(0)
    model = DDP(NextToken())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    seed = options.seed if options.fixed else options.seed + rank
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(folder)
        data = TokenFiles(folder, seed, rank, world)
        loader = DataLoader(data, batch_size=16)
        step = 0
        while step < options.steps:
            for ids in loader:
                if step == options.steps:
                    break
                logits = model(ids[:, :-1])
                loss = nn.functional.cross_entropy(
                    logits.flatten(0, 1), ids[:, 1:].flatten()
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if rank == 0:
                    print(f"step {step} loss {loss.item():.4f}", flush=True)
                step += 1
        whole = sorted(os.listdir(folder))
    if options.prove:
        mine = {os.path.basename(path) for path in data.files}
        readers = torch.tensor([int(name in mine) for name in whole])
        dist.all_reduce(readers)
        if rank == 0:
            once = bool((readers == 1).all())
            print("fault shows:", "no" if once else "yes", flush=True)


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
    cli.add_argument("--steps", type=int, default=20)
    cli.add_argument("--seed", type=int, default=74)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
