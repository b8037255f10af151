"""DS-5794: ranks exchange expert buffers of different sizes.

Source: deepspeedai/DeepSpeed#5794. A mixture-of-experts layer sizes the buffer that
goes through all_to_all by the rank's own number of tokens; as soon as the ranks have
unequal batches, they enter the exchange with unequal shapes (which blocks or drops
what does not fit; here it drops). --fixed agrees on the largest size first.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn


def all_to_all(buffer):
    """Sends row block i of `buffer` to rank i; returns what the others sent here.

    Made of the collectives that gloo has. As in a transport without a check of
    sizes, a peer's surplus is cut off and what it lacks stays zero.
    """
    world, rank = dist.get_world_size(), dist.get_rank()
    room = torch.zeros(world, 64, buffer.size(-1))
    room[:, : buffer.size(1)] = buffer
    arrived = [torch.empty_like(room) for _ in range(world)]
    dist.all_gather(arrived, room)
    return torch.stack([block[rank, : buffer.size(1)] for block in arrived])


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, buffer):
        return all_to_all(buffer)

    @staticmethod
    def backward(ctx, grad):
        return all_to_all(grad.contiguous())


class ExpertLayer(nn.Module):
    """One expert on each rank; tokens travel to the expert that the gate picks."""

    def __init__(self, width, world, agree):
        super().__init__()
        self.gate = nn.Linear(width, world)
        self.expert = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.agree = agree

    def forward(self, tokens):
        scores = self.gate(tokens).softmax(-1)
        weight, choice = scores.max(-1)
        size = torch.tensor(len(tokens))
        if self.agree:
            dist.all_reduce(size, op=dist.ReduceOp.MAX)
        world = scores.size(1)
        slots = torch.zeros(world, size.item(), tokens.size(1))
        index = [(choice == i).nonzero()[:, 0] for i in range(world)]
        for i, rows in enumerate(index):
            slots[i, : len(rows)] = tokens[rows]
        back = Exchange.apply(self.expert(Exchange.apply(slots)))
        mixed = torch.zeros_like(tokens)
        for i, rows in enumerate(index):
            mixed[rows] = back[i, : len(rows)]
        return tokens + weight[:, None] * mixed


class Tagger(nn.Module):
    def __init__(self, world, agree):
        super().__init__()
        self.words = nn.Embedding(40, 12)
        self.layer = ExpertLayer(12, world, agree)
        self.tags = nn.Linear(12, 4)

    def forward(self, ids):
        return self.tags(self.layer(self.words(ids)))


def batches(rank):
    """Sentences of a rank, packed; from the fifth batch on their lengths vary."""
    generator = torch.Generator().manual_seed(20 + rank)
    number = 0
    while True:
        length = 24 if number < 4 else 8 + (11 * number + 16 * rank) % 33
        yield torch.randint(40, (length,), generator=generator)
        number += 1


def train(rank, world, options):
    torch.manual_seed(3)
    model = Tagger(world, options.fixed)
    local = set(model.layer.expert.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = batches(rank)
    for step in range(options.steps):
        ids = next(data)
        loss = nn.functional.cross_entropy(model(ids), ids % 4)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            if parameter not in local:
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        rows = []
        model.layer.expert.register_forward_hook(
            lambda module, inputs, output: rows.append(inputs[0].size(1))
        )
        model(next(data))
        sizes = [torch.tensor(0) for _ in range(world)]
        dist.all_gather(sizes, torch.tensor(rows[0]))
        shown = len({size.item() for size in sizes}) > 1
        if rank == 0:
            print("fault shows:", "yes" if shown else "no", flush=True)


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
