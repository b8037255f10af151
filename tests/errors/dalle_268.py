"""Two ranks train a forecast of river levels; the rate falls on a plateau.

After DALLE-pytorch, issue 268.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WORLD, PAST = 2, 24


def levels(count, seed):
    """Windows of a slow wave with noise, and the level six hours later."""
    generator = torch.Generator().manual_seed(seed)
    phase = 6.28 * torch.rand(count, 1, generator=generator)
    pace = 0.1 + 0.2 * torch.rand(count, 1, generator=generator)
    wave = torch.sin(phase + pace * torch.arange(PAST + 6))
    wave = wave + 0.2 * torch.randn(wave.shape, generator=generator)
    return wave[:, :PAST], wave[:, -1]


def network(width=48):
    return nn.Sequential(
        nn.Linear(PAST, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 1),
    )  # fmt: skip


def train_epoch(model, optimizer, loader, rank, step):
    total = torch.zeros(())
    for past, later in loader:
        loss = F.mse_loss(model(past)[:, 0], later)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1
    return total / len(loader), step


def prove(model, optimizer, rank):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    rate = torch.tensor([optimizer.param_groups[0]["lr"]])
    state = torch.cat([flat, rate])
    states = [torch.empty_like(state) for _ in range(WORLD)]
    dist.all_gather(states, state)
    if rank == 0:
        apart = (states[0] - states[1])[:-1].norm().item()
        rates = [round(one[-1].item(), 8) for one in states]
        print(f"rates {rates}, the weights are {apart:.6f} apart")
        print("fault shows:", "yes" if apart > 1e-6 else "no", flush=True)


def work(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    data = TensorDataset(*levels(1024, args.seed))
    sampler = DistributedSampler(data, WORLD, rank, seed=args.seed)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=1, threshold=0.01
    )
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss, step = train_epoch(model, optimizer, loader, rank, step)
        avg_loss = loss.clone()
        dist.all_reduce(avg_loss)
        avg_loss /= WORLD
        scheduler.step(avg_loss if args.fixed else loss)
        if rank == 0:
            print(f"epoch {epoch} mean loss {avg_loss.item():.4f}", flush=True)
    if args.prove:
        prove(model, optimizer, rank)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    torch.multiprocessing.spawn(work, (args, port), nprocs=WORLD)


if __name__ == "__main__":
    main()
