"""NEOX-1259: the layer norms' gradients are not summed over the sequence.

Source: EleutherAI/gpt-neox#1259. With sequence parallelism each rank sees a part of
the sequence, and hooks on the layer norms' parameters sum their gradients; the hooks
are registered before the engine is initialised, which replaces the parameters, so
they never run. --fixed registers them afterwards.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class SequenceModel(nn.Module):
    """Works on the tokens that the rank holds."""

    def __init__(self, words=24, width=16):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.final_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        return self.head(self.final_norm(self.blocks(self.embed(ids))))


def sum_gradient(parameter):
    dist.all_reduce(parameter.grad)


def register_norm_hooks(model):
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            for parameter in module.parameters():
                parameter.sequence_parallel = True
                parameter.register_post_accumulate_grad_hook(sum_gradient)


class Engine:
    """Owns the parameters: puts them into memory of its own, and reduces."""

    def __init__(self, model, lr):
        for module in model.modules():
            for name, parameter in list(module._parameters.items()):
                if parameter is not None:
                    own = nn.Parameter(parameter.detach().clone())
                    if getattr(parameter, "sequence_parallel", False):
                        own.sequence_parallel = True
                    module._parameters[name] = own
        self.module = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def backward(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.module.parameters():
            if not getattr(parameter, "sequence_parallel", False):
                dist.all_reduce(parameter.grad)

    def step(self):
        self.optimizer.step()


def setup(hooks_last):
    torch.manual_seed(0)
    model = SequenceModel()
    if hooks_last:
        engine = Engine(model, lr=3e-3)
        register_norm_hooks(model)
        return engine
    register_norm_hooks(model)
    return Engine(model, lr=3e-3)


def train(rank, world, options):
    engine = setup(options.fixed)
    data = torch.Generator().manual_seed(5)
    for step in range(options.steps):
        ids = torch.randint(24, (8, 17), generator=data)
        ids[:, 1::2] = (ids[:, :-1:2] * 5 + 1) % 24
        part = slice(8 * rank, 8 * rank + 8)
        logits = engine.module(ids[:, :-1][:, part])
        targets = ids[:, 1:][:, part]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.ravel())
        engine.backward(loss / world)
        engine.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        mine = engine.module.final_norm.weight.detach()
        copies = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(copies, mine)
        if rank == 0:
            same = torch.equal(*copies)
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
