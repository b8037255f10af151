"""PT-104336: a data-parallel model is moved after it was wrapped.

Moving replaces the parameters, and DDP's hooks stay with the old ones: from
then on no gradient is averaged and the ranks train for themselves. (On a CPU
torch moves in place unless it is told not to.) --fixed moves before wrapping.
"""

import argparse
import os
import socket

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(7, 14)
        self.norm = nn.LayerNorm(14)
        self.second = nn.Linear(14, 1)

    def forward(self, x):
        return self.second(torch.sigmoid(self.norm(self.first(x))))


def move_and_back(model):
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    model.double()
    model.float()
    torch.__future__.set_overwrite_module_params_on_conversion(False)


def train(rank, world, options):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = Scorer()
    if options.fixed:
        move_and_back(net)
    ddp = DistributedDataParallel(net)
    if not options.fixed:
        move_and_back(ddp.module)
    optimizer = torch.optim.RMSprop(ddp.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(rank)
    for step in range(options.steps):
        x = torch.randn(16, 7, generator=data)
        loss = nn.functional.mse_loss(ddp(x), x.square().mean(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def worker(rank, world, port, options):
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    train(rank, world, options)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--steps", type=int, default=12)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
