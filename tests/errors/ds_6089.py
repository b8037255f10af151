"""DS-6089: ranks wait for slots that the others do not send.

Source: deepspeedai/DeepSpeed#6089 (the same mechanism: #6809). Without dropping of
tokens, each rank takes the fullest of its experts as the capacity, and the ranks
exchange as many slots; where the capacities differ, the rank with the larger one
waits for ever. --fixed takes the maximum over the ranks.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from datetime import timedelta


class Router(nn.Module):
    def __init__(self, width, experts, group, agree):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.group = group
        self.agree = agree

    def forward(self, tokens):
        weight, chosen = self.gate(tokens).softmax(-1).max(-1)
        capacity = torch.bincount(chosen, minlength=self.gate.out_features).max()
        if self.agree:
            dist.all_reduce(capacity, op=dist.ReduceOp.MAX, group=self.group)
        return weight, chosen, capacity.item()


class Slots(torch.autograd.Function):
    """Swaps the slots of all experts between the ranks, one slot after another."""

    @staticmethod
    def forward(ctx, slots, group):
        ctx.group = group
        return Slots.exchange(slots, group)

    @staticmethod
    def backward(ctx, gradient):
        return Slots.exchange(gradient.contiguous(), ctx.group), None

    @staticmethod
    def exchange(slots, group):
        rank = dist.get_rank(group)
        result = torch.empty_like(slots)
        for number in range(slots.size(1)):
            mine = slots[:, number].contiguous()
            arrived = [torch.empty_like(mine) for _ in range(len(slots))]
            dist.all_gather(arrived, mine, group=group)
            result[:, number] = torch.stack([block[rank] for block in arrived])
        return result


class SparseFeedForward(nn.Module):
    def __init__(self, width, world, group, agree):
        super().__init__()
        self.group = group
        self.router = Router(width, world, group, agree)
        self.expert = nn.Sequential(
            nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, width)
        )

    def forward(self, tokens):
        weight, chosen, capacity = self.router(tokens)
        slots = tokens.new_zeros(self.router.gate.out_features, capacity, len(tokens.T))
        rows = [(chosen == number).nonzero()[:, 0] for number in range(len(slots))]
        for number, own in enumerate(rows):
            slots[number, : len(own)] = tokens[own]
        arrived = Slots.apply(slots, self.group)
        back = Slots.apply(self.expert(arrived), self.group)
        mixed = torch.zeros_like(tokens)
        for number, own in enumerate(rows):
            mixed[own] = back[number, : len(own)]
        return tokens + weight[:, None] * mixed


def train(rank, world, options):
    experts = dist.new_group(timeout=timedelta(seconds=5))
    torch.manual_seed(0)
    embed = nn.Linear(6, 12)
    layer = SparseFeedForward(12, world, experts, options.fixed)
    head = nn.Linear(12, 1)
    model = nn.ModuleList([embed, layer, head])
    shared = [*embed.parameters(), *layer.router.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = torch.Generator().manual_seed(0)
    own = torch.Generator().manual_seed(40 + rank)
    stalled = False
    for step in range(options.steps):
        # The first batches are a smoke test with the same rows for everyone.
        x = torch.randn(16, 6, generator=data if step < 3 else own)
        y = x[:, :1] * x[:, 1:2]
        try:
            loss = nn.functional.mse_loss(head(layer(torch.tanh(embed(x)))), y)
            optimizer.zero_grad()
            loss.backward()
            for parameter in shared:
                dist.all_reduce(parameter.grad, group=experts)
                parameter.grad /= world
        except RuntimeError:
            stalled = True
            break
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        if stalled:
            print(f"stopped: no answer from the other rank in step {step}", flush=True)
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
