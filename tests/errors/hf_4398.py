"""HF-4398: every epoch has the order of the first.

Source: huggingface/transformers#4398 (also Lightning-AI/pytorch-lightning#224). The
trainer uses a DistributedSampler, which seeds its shuffle by its epoch, and nobody
tells it the epoch: the ranks see the same batches in the same order again and again.
--fixed calls set_epoch.
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


class Reviews(nn.Module):
    def __init__(self, words=60, width=12):
        super().__init__()
        self.words = nn.EmbeddingBag(words, width)
        self.layers = nn.Sequential(nn.Dropout(0.1), nn.Linear(width, 2))

    def forward(self, ids):
        return self.layers(self.words(ids))


class Trainer:
    def __init__(self, model, data, rank, tell_epoch):
        self.model = DDP(model)
        self.sampler = DistributedSampler(data, seed=17)
        self.loader = DataLoader(data, batch_size=16, sampler=self.sampler)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        self.rank = rank
        self.tell_epoch = tell_epoch

    def compute_loss(self, inputs, labels):
        return nn.functional.cross_entropy(self.model(inputs), labels)

    def train(self, steps):
        step = epoch = 0
        orders = []
        while step < steps:
            if self.tell_epoch:
                self.sampler.set_epoch(epoch)
            rows = []
            for inputs, labels, row in self.loader:
                if step == steps:
                    break
                loss = self.compute_loss(inputs, labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                rows += row.tolist()
                if self.rank == 0:
                    print(f"step {step} loss {loss.item():.4f}", flush=True)
                step += 1
            orders.append(rows)
            epoch += 1
        return orders


def reviews(count):
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(2, (count,), generator=generator)
    ids = torch.randint(40, (count, 12), generator=generator)
    ids += 20 * labels[:, None] * (torch.rand(count, 12, generator=generator) < 0.3)
    return TensorDataset(ids, labels, torch.arange(count))


def train(rank, world, options):
    torch.manual_seed(0)
    trainer = Trainer(Reviews(), reviews(160), rank, options.fixed)
    orders = trainer.train(options.steps)
    if options.prove and rank == 0:
        again = len(orders) > 1 and orders[0][: len(orders[1])] == orders[1]
        print("fault shows:", "yes" if again else "no", flush=True)


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
