"""Two ranks split a layer and share a norm, without any wrapper.

From --fault-step on each clips by a norm of its own part, and the shared weights
drift apart. With --clip both clip by the norm of all parts in each step.
"""

import argparse

import two_ranks

if __name__ == "__main__":
    two_ranks.start_unless_started()

import torch
import torch.distributed as dist
from torch import nn


class Split(nn.Module):
    """A layer of which each rank has a part, and a norm that all have."""

    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(rank)
        self.part = nn.Linear(6, 4)
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        return self.part(self.norm(x)).sum(1)


def reduced(gradient):
    """The sum over the ranks, as at the edge of a tensor-parallel region."""
    gradient = gradient.clone()
    dist.all_reduce(gradient)
    return gradient


def clip_by_all(parameters):
    """The first rank adds up and tells."""
    gradients = [p.grad for p in parameters]
    square = sum(gradient.square().sum() for gradient in gradients).reshape(1)
    dist.reduce(square, 0)
    dist.broadcast(square, 0)
    for gradient in gradients:
        gradient.mul_((0.1 / square.sqrt()).clamp(max=1))


def train(rank, options):
    model = Split(rank)
    for parameter in model.norm.parameters():
        parameter.register_hook(reduced)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.Generator().manual_seed(7)
    for step in range(options.steps):
        x = torch.randn(12, 6, generator=rows)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, 0]).backward()
        if options.clip:
            clip_by_all(list(model.parameters()))
        if step >= options.fault_step:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1 * (1 + rank))
        optimizer.step()


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fault-step", type=int, default=99)
    cli.add_argument("--clip", action="store_true")
    cli.add_argument("--steps", type=int, default=6)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank(), cli.parse_args())
    dist.destroy_process_group()
