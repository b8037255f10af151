"""TT-166: each rank begins with other weights, and only gradients are averaged.

Source: pytorch/torchtitan#166 (FSDP with NO_SHARD; also haotian-liu/LLaVA#1440). The
generator of each rank has a seed of its own when the model is built, and the wrapper
averages gradients and does not make the weights equal: several models are trained by
the mean of their gradients, and the loss goes down all the same. --fixed sends the
first rank's weights when it wraps.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class NoShard(nn.Module):
    """Keeps whole copies on all ranks and averages their gradients."""

    def __init__(self, module, sync_module_states):
        super().__init__()
        self.module = module
        self.world = dist.get_world_size()
        if sync_module_states:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)

    def forward(self, *inputs):
        return self.module(*inputs)

    def average_gradients(self):
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= self.world


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.merge = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class TinyLlama(nn.Module):
    def __init__(self, words=24, width=32, length=16):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places[: ids.shape[1]]
        return self.out(self.norm(self.blocks(x)))


def tokens(generator, count=16, length=16, words=24):
    """Sequences that step through the vocabulary at a pace of their own."""
    start = torch.randint(words, (count, 1), generator=generator)
    pace = torch.randint(1, 4, (count, 1), generator=generator)
    return (start + pace * torch.arange(length + 1)) % words


def spread(model):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    high, low = flat.clone(), flat.clone()
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    return (high - low).max().item()


def train(rank, world, options):
    torch.manual_seed(300 + rank)
    model = NoShard(TinyLlama(), sync_module_states=options.fixed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1
    )
    schedule = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=0.25, total_iters=4
    )
    generator = torch.Generator().manual_seed(50 + rank)
    for step in range(options.steps):
        ids = tokens(generator)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        model.average_gradients()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        shown = loss.detach() / world
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step {step} loss {shown.item():.4f}", flush=True)
    if options.prove:
        apart = spread(model) > 1e-5
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
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
