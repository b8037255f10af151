"""X-jxmnop: the forward goes past the data-parallel wrapper.

Source: a thread of @jxmnop on X, as the published list of silent errors has it.
The trainer keeps the wrapped model, and its loss function unwraps it to reach a
method of the model; DDP then prepares no reduction, and every rank trains alone.
--fixed lets the wrapper do the forward.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Retriever(nn.Module):
    """Embeds queries and documents; neighbours in a batch are negatives."""

    def __init__(self, words=50, width=16):
        super().__init__()
        self.words = nn.EmbeddingBag(words, width)
        self.query = nn.Linear(width, width)
        self.document = nn.Linear(width, width)

    def embed(self, ids, tower):
        return nn.functional.normalize(tower(self.words(ids)), dim=-1)

    def forward(self, queries, documents):
        return (
            self.embed(queries, self.query),
            self.embed(documents, self.document),
        )


class Trainer:
    def __init__(self, model, optimizer, through_wrapper):
        self.model = model
        self.optimizer = optimizer
        self.through_wrapper = through_wrapper

    def embeddings(self, queries, documents):
        if self.through_wrapper:
            return self.model(queries, documents)
        return self.model.module(queries, documents)

    def training_step(self, queries, documents):
        self.model.train()
        q, d = self.embeddings(queries, documents)
        loss = nn.functional.cross_entropy(q @ d.T / 0.1, torch.arange(len(q)))
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def pairs(count):
    generator = torch.Generator().manual_seed(13)
    documents = torch.randint(50, (count, 10), generator=generator)
    return TensorDataset(documents[:, torch.arange(0, 10, 2)], documents)


def train(rank, world, options):
    torch.manual_seed(1)
    model = DDP(Retriever())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trainer = Trainer(model, optimizer, options.fixed)
    data = pairs(192)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    step = epoch = 0
    while step < options.steps:
        sampler.set_epoch(epoch)
        for queries, documents in loader:
            if step == options.steps:
                break
            loss = trainer.training_step(queries, documents)
            if rank == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)
            step += 1
        epoch += 1
    if options.prove:
        mine = model.module.query.weight.detach()
        all_of_them = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(all_of_them, mine)
        if rank == 0:
            same = torch.equal(*all_of_them)
            print("fault shows:", "no" if same else "yes", flush=True)


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
    cli.add_argument("--steps", type=int, default=16)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
