"""Parcel volume from three depth profiles, trained by two processes.

Each process draws its own mini-batches; gradients are averaged over the
processes before every optimizer step.
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

WORLD = 2


def parcels(n, seed):
    g = torch.Generator().manual_seed(seed)
    dims = 0.3 + 0.7 * torch.rand(n, 3, generator=g)
    t = torch.linspace(0, 1, 20)
    profile = torch.sigmoid((dims.unsqueeze(2) - t) * 25)
    dent = (
        0.3
        * torch.rand(n, 3, 1, generator=g)
        * torch.exp(-(((t - torch.rand(n, 3, 1, generator=g)) / 0.1) ** 2))
    )
    x = profile - dent + 0.12 * torch.randn(n, 3, 20, generator=g)
    volume = dims.prod(1)
    return x, (volume - 0.27) / 0.16


class VolumeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = nn.Sequential(
            nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh()
        )
        self.join = nn.Sequential(nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, x):
        return self.join(self.side(x).flatten(1)).squeeze(1)


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= WORLD
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def rmse(model, x, y):
    with torch.no_grad():
        return (model(x) - y).pow(2).mean().sqrt().item()


def setup(rank, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)


def worker(rank, port, args):
    torch.set_num_threads(1)
    setup(rank, port)
    torch.manual_seed(args.seed + rank)
    say = print if rank == 0 else (lambda *a: None)

    x, y = parcels(2000, 1)
    x_test, y_test = parcels(500, 2)
    x, y = x[rank::WORLD], y[rank::WORLD]

    model = VolumeNet()
    if args.fixed:
        for p in model.parameters():
            dist.broadcast(p.data, src=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    g = torch.Generator().manual_seed(args.seed + rank)

    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(x), (args.batch,), generator=g)
        loss = F.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if step % 50 == 0:
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            say(
                f"step {step:4d}  loss {shown.item() / WORLD:.4f}  "
                f"test rmse {rmse(model, x_test, y_test):.4f}"
            )

    say(f"test rmse {rmse(model, x_test, y_test):.4f}")

    if args.prove:
        mine = torch.cat([p.detach().flatten() for p in model.parameters()])
        every = [torch.empty_like(mine) for _ in range(WORLD)]
        dist.all_gather(every, mine)
        apart = (every[0] - every[1]).abs().max().item()
        say(f"largest difference of a weight between the two processes {apart:.6f}")
        say("fault shows:", "yes" if apart > 1e-5 else "no")
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--batch", type=int, default=32, help="per process")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=33)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    mp.spawn(worker, args=(free_port(), args), nprocs=WORLD)


if __name__ == "__main__":
    main()
