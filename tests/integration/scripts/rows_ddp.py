"""Two data-parallel ranks read rows; with --same both read those of rank 0.

A scale is trained beside the model; with --bare nobody wraps it. With --noise each
rank draws noise by itself. With --halves a step has two backwards, of which the last
one averages. With --evaluates ranks evaluate shares of further rows after half of the
steps, put them together, and save what each keeps for itself.
"""

import argparse
import tempfile

import two_ranks

if __name__ == "__main__":
    two_ranks.start_unless_started()

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def evaluate(model, rows):
    """The mean of all ranks."""
    sums = torch.zeros(2)
    with torch.no_grad():
        for (x,) in DataLoader(
            rows, 8, sampler=DistributedSampler(rows, shuffle=False)
        ):
            sums += torch.tensor([model(x).square().sum(), len(x)])
    dist.all_reduce(sums)
    return sums[0] / sums[1]


def save(rank):
    with tempfile.TemporaryDirectory() as own:
        folders = [own]
        dist.broadcast_object_list(folders, 0)
        torch.save(torch.get_rng_state(), f"{folders[0]}/generator{rank}.pt")
        dist.barrier()


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

    further = TensorDataset(torch.randn(16, 6, generator=rows))
    for step, (x,) in enumerate(DataLoader(data, batch_size=12)):
        if options.evaluates and step == options.steps // 2:
            model.eval()
            evaluate(model, further)
            model.train()
            save(rank)
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
    cli.add_argument("--evaluates", action="store_true")
    cli.add_argument("--steps", type=int, default=6)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank(), cli.parse_args())
    dist.destroy_process_group()
