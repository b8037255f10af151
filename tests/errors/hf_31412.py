"""HF-31412: dropout is the same on all ranks.

Source: huggingface/transformers#31412. The trainer seeds every process alike and
leaves it at that, so that the dropout masks of a step are equal on all ranks: the
averaged gradient has less noise of one kind and more of another than one large batch
would have. --fixed seeds by rank once the model is built.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
import random

from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)


class Encoder(nn.Module):
    def __init__(self, words=32, width=16):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.drop = nn.Dropout(0.2)
        self.layer = nn.TransformerEncoderLayer(
            width, 2, 32, dropout=0.2, batch_first=True
        )
        self.head = nn.Linear(width, 4)

    def forward(self, ids):
        return self.head(self.layer(self.drop(self.embed(ids))).mean(1))


def sequences(count):
    generator = torch.Generator().manual_seed(21)
    ids = torch.randint(32, (count, 10), generator=generator)
    return TensorDataset(ids, ids.float().mean(1).sub(10).div(3).long().clamp(0, 3))


def train(rank, world, options):
    set_seed(40)
    model = DDP(Encoder())
    if options.fixed:
        set_seed(40 + rank)
    data = sequences(192)
    sampler = DistributedSampler(data, seed=40)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = epoch = 0
    while step < options.steps:
        sampler.set_epoch(epoch)
        for ids, labels in loader:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        epoch += 1
    if options.prove:
        mask = nn.functional.dropout(torch.ones(64), 0.5)
        masks = [torch.empty_like(mask) for _ in range(world)]
        dist.all_gather(masks, mask)
        if rank == 0:
            same = torch.equal(*masks)
            print("fault shows:", "yes" if same else "no", flush=True)


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
    cli.add_argument("--steps", type=int, default=14)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
