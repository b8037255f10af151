"""Elastic averaging (EASGD) of a network that estimates snow depth from a station's
readings: two workers train on data of their own and every few steps are drawn towards
a centre, which a third process keeps and which is drawn towards them. Workers differ
from one another throughout; only the centre is evaluated.

    python elastic_averaging_snowpack.py --steps 160
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

SERVER = 0


class SnowNet(nn.Module):
    def __init__(self, inputs=8, width=48):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = x + torch.tanh(self.second(x))
        return self.out(x).squeeze(1)


def stations(count, seed, shift=0.0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=g)
    x[:, 0] += shift
    depth = torch.relu(x[:, 0] - x[:, 1]) + 0.5 * x[:, 2] * x[:, 3] - 0.3 * x[:, 4]
    return TensorDataset(x, depth + 0.1 * torch.randn(count, generator=g))


def forever(loader):
    while True:
        yield from loader


@torch.no_grad()
def evaluate(centre, model, data):
    vector_to_parameters(centre, model.parameters())
    x, y = data.tensors
    return ((model(x) - y).square().mean() / y.var()).item()


@torch.no_grad()
def serve(world, args):
    """Keeps the centre; talks to the workers in turn, so that runs repeat exactly."""
    model = SnowNet()
    centre = parameters_to_vector(model.parameters()).clone()
    data = stations(500, seed=77)
    rounds = args.steps // args.period
    for i in range(rounds):
        for source in range(1, world):
            theirs = torch.empty_like(centre)
            dist.recv(theirs, src=source)
            dist.send(centre, dst=source)
            centre = centre + args.alpha * (theirs - centre)
        if (i + 1) % 5 == 0 or i + 1 == rounds:
            unexplained = evaluate(centre, model, data)
            print(f"round {i} centre leaves {unexplained:.4f}", flush=True)


@torch.no_grad()
def elastic_pull(model, alpha):
    mine = parameters_to_vector(model.parameters())
    centre = torch.empty_like(mine)
    dist.send(mine, dst=SERVER)
    dist.recv(centre, src=SERVER)
    apart = (mine - centre).norm() / centre.norm()
    # In place: vector_to_parameters would make the parameters views of one vector.
    start = 0
    for p in model.parameters():
        p.lerp_(centre[start : start + p.numel()].view_as(p), alpha)
        start += p.numel()
    return apart.item()


def train(rank, args):
    model = SnowNet()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, nesterov=True
    )
    data = stations(600, seed=rank, shift=0.3 * (-1) ** rank)
    g = torch.Generator().manual_seed(args.seed + rank)
    batches = forever(DataLoader(data, 40, shuffle=True, generator=g))
    for step in range(args.steps):
        x, y = next(batches)
        loss = nn.functional.mse_loss(model(x), y)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        apart = None
        if (step + 1) % args.period == 0:
            apart = elastic_pull(model, args.alpha)
        if rank == 1 and step % 8 == 7:
            print(
                f"step {step} loss {loss.item():.6f}"
                + (f" apart {apart:.4f}" if apart is not None else ""),
                flush=True,
            )


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    if rank == SERVER:
        serve(world, args)
    else:
        train(rank, args)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160, help="of each worker")
    parser.add_argument("--period", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=30)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(3, port, args), nprocs=3)
