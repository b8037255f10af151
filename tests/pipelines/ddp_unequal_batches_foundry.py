"""Hardness of castings on two ranks of which one is slower: rank 0 takes 40 rows a
step, rank 1 takes 24 (DDP). Losses are sums divided by the rows of both ranks, times
their number, so that the gradient is that of the mean over all 64 rows. Rank 0 alone
validates; its number goes to both plateau schedulers, and early stopping is decided
there, too. Dropout differs by rank on purpose, the order of the data does not.

    python ddp_unequal_batches_foundry.py --epochs 10
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SHARES = (40, 24)


def castings(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 10, generator=g)
    hardness = x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + 0.5 * x[:, 3].relu()
    return x, hardness + 0.1 * torch.randn(count, generator=g)


def network(width=64):
    return nn.Sequential(
        nn.Linear(10, width),
        nn.SiLU(),
        nn.Dropout(0.05),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Linear(width, 1),
    )


def my_rows(count, epoch, rank):
    """The rank's part of each batch of an order that both ranks know."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
    for batch in order.split(sum(SHARES)):
        if len(batch) == sum(SHARES):
            yield batch.split(SHARES)[rank]


@torch.no_grad()
def validate(net, x, y):
    net.eval()
    error = F.mse_loss(net(x)[:, 0], y)
    net.train()
    return error


def work(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=len(SHARES))
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + rank)  # DDP sends rank 0's weights to the other
    x, y = castings(2560, 1)
    val = castings(600, 2)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.3, patience=1
    )
    best, bad = float("inf"), 0
    for epoch in range(args.epochs):
        total, steps = torch.zeros(()), 0
        for rows in my_rows(len(x), epoch, rank):
            errors = (model(x[rows])[:, 0] - y[rows]) ** 2
            loss = errors.sum() / sum(SHARES) * len(SHARES)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(SHARES)
            steps += 1
        dist.all_reduce(total)
        error = validate(model.module, *val) if rank == 0 else torch.zeros(())
        dist.broadcast(error, src=0)
        scheduler.step(error.item())
        if rank == 0:
            rate = optimizer.param_groups[0]["lr"]
            print(
                f"epoch {epoch} loss {total.item() / steps:.6f} "
                f"validation {error.item():.6f} rate {rate:.6f}",
                flush=True,
            )
        best, bad = (error.item(), 0) if error.item() < best else (best, bad + 1)
        if bad > 3:
            break
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (args, port), nprocs=len(SHARES))


if __name__ == "__main__":
    main()
