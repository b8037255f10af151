"""Two ranks learn to move an arm from recorded frames; some are held out.

The seed is offset by rank, so that the ranks draw different noise.
After OpenTau, pull request 498.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, random_split

STATE, JOINTS, WORLD = 10, 4, 2


class Policy(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(STATE, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1),
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, JOINTS),
        )  # fmt: skip

    def forward(self, state):
        return self.layers(state)


def frames(count=1200):
    """States and the moves that were made in them, the same on all ranks."""
    generator = torch.Generator().manual_seed(17)
    state = torch.randn(count, STATE, generator=generator)
    mixing = torch.randn(STATE, JOINTS, generator=generator) / 2
    bend = torch.randn(STATE, JOINTS, generator=generator) / 2
    move = (state @ mixing).tanh() + 0.5 * (state @ bend).sin()
    noise = 0.1 * torch.randn(count, JOINTS, generator=generator)
    return TensorDataset(state, move + noise)


def set_seed(seed, rank):
    torch.manual_seed(seed + 12345 * rank)


def make_dataset(args):
    data = frames()
    sizes = [len(data) - args.held_out, args.held_out]
    if args.fixed:
        return random_split(data, sizes, torch.Generator().manual_seed(args.seed))
    return random_split(data, sizes)


def shares(part, rank, epoch, seed):
    """A rank's rows of an epoch: the part is shuffled alike and dealt out."""
    order = torch.Generator().manual_seed(1000 * seed + epoch)
    return torch.randperm(len(part), generator=order)[rank::WORLD].tolist()


@torch.no_grad()
def validate(model, part, rank):
    """The mean error over the rows held out, shared among the ranks."""
    model.eval()
    rows = part.indices[rank::WORLD]
    state, move = part.dataset[rows]
    sums = torch.tensor([F.mse_loss(model(state), move).item() * len(rows), len(rows)])
    model.train()
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def overlap(train, valid):
    """How many rows of any rank's validation some rank trains."""
    parts = [None] * WORLD
    dist.all_gather_object(parts, (list(train.indices), list(valid.indices)))
    trained = set().union(*(rows for rows, _ in parts))
    return len(trained & set().union(*(rows for _, rows in parts)))


def work(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    set_seed(args.seed, rank)
    train, valid = make_dataset(args)
    model = DistributedDataParallel(Policy())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    step = 0
    for epoch in range(args.epochs):
        loader = DataLoader(train, 25, sampler=shares(train, rank, epoch, args.seed))
        for state, move in loader:
            noisy = state + 0.05 * torch.randn_like(state)
            loss = F.mse_loss(model(noisy), move)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        error = validate(model.module, valid, rank)
        if rank == 0:
            print(f"epoch {epoch} validation {error:.4f}", flush=True)
    if args.prove:
        both = overlap(train, valid)
        if rank == 0:
            print(f"{both} rows are held out by one rank and trained by another")
            print("fault shows:", "yes" if both else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--held-out", type=int, default=200)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    torch.multiprocessing.spawn(work, (args, port), nprocs=WORLD)


if __name__ == "__main__":
    main()
