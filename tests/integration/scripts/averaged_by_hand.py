"""Two ranks average their gradients themselves, without any wrapper.

With --own-weights each begins with weights of its own.
"""

import argparse

import two_ranks

if __name__ == "__main__":
    two_ranks.start_unless_started()

import torch
import torch.distributed as dist
from torch import nn


def average(parameters, flat):
    gradients = [p.grad for p in parameters]
    if flat:
        gradients = [torch.cat([gradient.reshape(-1) for gradient in gradients])]
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
    if flat:
        nn.utils.vector_to_parameters(gradients[0], [p.grad for p in parameters])


def train(rank, options):
    torch.manual_seed(rank if options.own_weights else 0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.Generator().manual_seed(rank)
    for _ in range(options.steps):
        x = torch.randn(12, 6, generator=rows)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x).squeeze(-1), x[:, 0]).backward()
        average(list(model.parameters()), options.flat)
        optimizer.step()


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--own-weights", action="store_true")
    cli.add_argument("--flat", action="store_true")
    cli.add_argument("--steps", type=int, default=6)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank(), cli.parse_args())
    dist.destroy_process_group()
