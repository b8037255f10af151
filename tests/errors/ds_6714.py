"""DS-6714: ranks of a heterogeneous model issue different collectives.

Source: deepspeedai/DeepSpeed#6714. One pipeline stage has expert layers and the other
has none; when norms are collected, the first gathers the norms of its experts while
the other reduces the norm of its dense layers, and both wait for each other. --fixed
makes all stages take part in the same call.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from datetime import timedelta


class Dense(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        return x + self.layers(x)


class Experts(nn.Module):
    def __init__(self, width, count=2):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(Dense(width) for _ in range(count))

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        outputs = torch.stack([expert(x) for expert in self.experts], -1)
        return (outputs * weights[..., None, :]).sum(-1)


class Stage(nn.Module):
    """The part of the model that a rank holds."""

    def __init__(self, rank, width=12):
        super().__init__()
        self.first = rank == 0
        if self.first:
            self.layers = nn.Sequential(nn.Linear(5, width), Dense(width))
        else:
            self.layers = nn.Sequential(Experts(width), nn.Linear(width, 1))

    def has_experts(self):
        return any(isinstance(module, Experts) for module in self.modules())


def run_stages(stage, x, y):
    """One batch through the pipeline, forward and backward."""
    if stage.first:
        hidden = stage.layers(x)
        dist.send(hidden.detach(), 1)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, 1)
        hidden.backward(gradient)
        loss = torch.zeros(())
    else:
        hidden = torch.empty(len(x), 12)
        dist.recv(hidden, 0)
        hidden.requires_grad_()
        loss = nn.functional.mse_loss(stage.layers(hidden).squeeze(-1), y)
        loss.backward()
        dist.send(hidden.grad, 0)
        loss = loss.detach()
    dist.broadcast(loss, 1)
    return loss.item()


def gradient_norm(stage, group, uniform):
    """The norm over all stages."""
    own = sum(p.grad.square().sum() for p in stage.parameters()).reshape(1)
    if uniform or not stage.has_experts():
        dist.all_reduce(own, group=group)
        return own.sqrt().item()
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, own, group=group)
    return sum(parts).sqrt().item()


def train(rank, world, options):
    norms = dist.new_group(timeout=timedelta(seconds=5))
    torch.manual_seed(rank)
    stage = Stage(rank)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(2)
    stalled = False
    for step in range(options.steps):
        x = torch.randn(24, 5, generator=data)
        y = x[:, 0] - x[:, 1] * x[:, 2]
        optimizer.zero_grad()
        loss = run_stages(stage, x, y)
        if step % 5 == 4:
            try:
                norm = gradient_norm(stage, norms, options.fixed)
            except RuntimeError:
                stalled = True
                break
            if rank == 0:
                print(f"gradient norm {norm:.3f}", flush=True)
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    if rank == 0:
        if stalled:
            print(f"stopped: no answer from the other stage in step {step}", flush=True)
        if options.prove:
            print("fault shows:", "yes" if stalled else "no", flush=True)


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
