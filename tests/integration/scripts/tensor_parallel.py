"""Two by two ranks: tensor parallelism by hand, and averaged gradients.

What is not split (norms, the second bias, the head) is equal on both ranks of a
tensor-parallel group. From --fault-step on each rank clips by the norm of what
it holds itself.
"""

import argparse

import two_ranks

if __name__ == "__main__":
    two_ranks.start_unless_started(4)

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 8


class Copy(torch.autograd.Function):
    """Goes to all ranks of the group; gradients add up."""

    @staticmethod
    def forward(context, x, group):
        context.group = group
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class Sum(torch.autograd.Function):
    """Adds what the ranks of the group have."""

    @staticmethod
    def forward(context, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Block(nn.Module):
    """Each rank of the group has half of the hidden units."""

    def __init__(self, group):
        super().__init__()
        self.group = group
        half = 4 * WIDTH // dist.get_world_size(group)
        self.norm = nn.LayerNorm(WIDTH)
        first = nn.Linear(WIDTH, 4 * WIDTH)
        second = nn.Linear(4 * WIDTH, WIDTH)
        mine = slice(dist.get_rank(group) * half, (dist.get_rank(group) + 1) * half)
        self.up = nn.Parameter(first.weight.detach()[mine].clone())
        self.down = nn.Parameter(second.weight.detach()[:, mine].clone())
        self.bias = nn.Parameter(second.bias.detach().clone())

    def forward(self, x):
        hidden = Copy.apply(self.norm(x), self.group)
        hidden = torch.relu(hidden @ self.up.T)
        return x + Sum.apply(hidden @ self.down.T, self.group) + self.bias


def clip(model, group, limit, own):
    """By the norm of all gradients of the group."""
    split = [p.grad for n, p in model.named_parameters() if n.endswith(("up", "down"))]
    whole = [
        p.grad for n, p in model.named_parameters() if not n.endswith(("up", "down"))
    ]
    squares = sum(gradient.square().sum() for gradient in split)
    if not own:
        dist.all_reduce(squares, group=group)
    squares = squares + sum(gradient.square().sum() for gradient in whole)
    scale = min(1.0, limit / float(squares.sqrt() + 1e-6))
    for gradient in split + whole:
        gradient.mul_(scale)


def train(rank, options):
    tensor_groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    data_groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    tensor_group, data_group = tensor_groups[rank // 2], data_groups[rank % 2]
    torch.manual_seed(0)
    model = nn.Sequential(Block(tensor_group), Block(tensor_group), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rows = torch.Generator().manual_seed(rank // 2)
    for step in range(options.steps):
        x = torch.randn(12, WIDTH, generator=rows)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x).squeeze(-1), x.prod(-1)).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=data_group)
            parameter.grad /= 2
        clip(model, tensor_group, 0.05, own=step >= options.fault_step)
        optimizer.step()


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fault-step", type=int, default=10**6)
    cli.add_argument("--steps", type=int, default=12)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank(), cli.parse_args())
    dist.destroy_process_group()
