"""FUNASR-3472: ranks exchange the gradients of the wrong micro-batch.

Source: modelscope/FunASR#3472. With accumulation only one micro-batch of a step needs
the exchange, the last one. The trainer enters no_sync() for all but those whose index
is a multiple of the number: the first is exchanged, the last stays local, and the
ranks step by different gradients. --fixed counts from one.
"""

import argparse
import contextlib
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Recogniser(nn.Module):
    """Reads a sequence of sounds as a sequence of units."""

    def __init__(self, features=10, width=24, units=8):
        super().__init__()
        self.front = nn.Conv1d(features, width, 3, padding=1)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, units)

    def forward(self, sounds):
        x = self.front(sounds.transpose(1, 2)).relu().transpose(1, 2)
        return self.out(self.norm(self.rnn(x)[0]))


class Trainer:
    def __init__(self, rank, accum_grad, count_from_one):
        self.model = DDP(Recogniser())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.rank = rank
        self.accum_grad = accum_grad
        self.offset = 1 if count_from_one else 0

    def sync_context(self, batch_idx):
        if (batch_idx + self.offset) % self.accum_grad == 0:
            return contextlib.nullcontext()
        return self.model.no_sync()

    def train_epoch(self, loader, step, steps):
        total = 0.0
        for batch_idx, (sounds, units) in enumerate(loader):
            with self.sync_context(batch_idx):
                logits = self.model(sounds)
                loss = nn.functional.cross_entropy(logits.transpose(1, 2), units)
                (loss / self.accum_grad).backward()
            total += loss.item() / self.accum_grad
            if (batch_idx + 1) % self.accum_grad == 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                if self.rank == 0:
                    print(f"step {step} loss {total:.4f}", flush=True)
                total = 0.0
                step += 1
                if step == steps:
                    break
        return step


def speech(count):
    g = torch.Generator().manual_seed(6)
    units = torch.randint(8, (count, 12), generator=g)
    voice = torch.randn(8, 10, generator=g)
    sounds = voice[units] + 0.8 * torch.randn(count, 12, 10, generator=g)
    return TensorDataset(sounds, units)


def spread(model):
    """How far the ranks' weights are apart."""
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    high, low = flat.clone(), flat.clone()
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    return (high - low).max().item()


def train(rank, world, options):
    torch.manual_seed(0)
    data = speech(384)
    sampler = DistributedSampler(data, world, rank, seed=2)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    trainer = Trainer(rank, accum_grad=3, count_from_one=options.fixed)
    step = epoch = 0
    while step < options.steps:
        sampler.set_epoch(epoch)
        step = trainer.train_epoch(loader, step, options.steps)
        epoch += 1
    if options.prove:
        apart = spread(trainer.model) > 1e-5
        if rank == 0:
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
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
