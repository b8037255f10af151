"""Two data-parallel ranks read rows; with --same both read those of rank 0.

A scale is trained beside the model; with --bare nobody wraps it. With --noise each
rank draws noise by itself. With --halves a step has two backwards, of which the last
one averages.
"""

import argparse

import two_ranks

if __name__ == "__main__":
    two_ranks.start_unless_started()

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def train(rank, options):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    model = DistributedDataParallel(layers)
    scale = nn.Linear(1, 1)
    if not options.bare:
        scale = DistributedDataParallel(scale)
    trained = [*model.parameters(), *scale.parameters()]
    optimizer = torch.optim.SGD(trained, lr=0.05)
    if options.noise:
        torch.manual_seed(10 + rank)
    rows = torch.Generator().manual_seed(0 if options.same else rank)
    data = TensorDataset(torch.randn(12 * options.steps, 6, generator=rows))

    def backward(x):
        given = x + 0.1 * torch.randn_like(x) if options.noise else x
        nn.functional.mse_loss(scale(model(given)).squeeze(-1), x[:, 0]).backward()

    for (x,) in DataLoader(data, batch_size=12):
        optimizer.zero_grad()
        if options.halves:
            with model.no_sync(), scale.no_sync():
                backward(x[:6])
        backward(x[6:] if options.halves else x)
        optimizer.step()


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--same", action="store_true")
    cli.add_argument("--bare", action="store_true")
    cli.add_argument("--noise", action="store_true")
    cli.add_argument("--halves", action="store_true")
    cli.add_argument("--steps", type=int, default=6)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank(), cli.parse_args())
    dist.destroy_process_group()
