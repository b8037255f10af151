"""Counts mites on hives' photographs with data parallelism on two ranks started here.
The evaluation is shared by a DistributedSampler as well, which repeats pictures until
all ranks have as many. Predictions are gathered, put into the order of the data and
trimmed to its length before anything is computed of them.

    python ddp_trimmed_eval_mites.py
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SIDE, MOST, WORLD = 20, 6, 2


def photographs(count, seed):
    rng = torch.Generator().manual_seed(seed)
    mites = torch.randint(MOST + 1, (count,), generator=rng)
    pictures = 0.2 * torch.randn(count, 1, SIDE, SIDE, generator=rng)
    for picture, number in zip(pictures, mites.tolist()):
        spots = torch.randperm(36, generator=rng)[:number].tolist()
        for spot in spots:
            top, left = 1 + 3 * (spot // 6), 1 + 3 * (spot % 6)
            picture[0, top : top + 2, left : left + 2] += 1
    return TensorDataset(pictures, mites.float())


class MiteCounter(nn.Module):
    """A density whose sum is the number."""

    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ELU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ELU(), nn.Conv2d(width, 1, 1),
        )  # fmt: skip

    def forward(self, picture):
        return F.softplus(self.layers(picture) - 5).sum((1, 2, 3))


@torch.no_grad()
def predict(net, loader, count):
    """Predictions of all samples in their order, on each rank."""
    net.eval()
    own = torch.cat([net(picture) for picture, _ in loader])
    parts = [torch.empty_like(own) for _ in range(WORLD)]
    dist.all_gather(parts, own)
    net.train()
    return torch.stack(parts, 1).flatten()[:count]


def work(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train, held = photographs(800, args.seed), photographs(151, args.seed + 1)
    sampler = DistributedSampler(train, WORLD, rank, seed=args.seed)
    loader = DataLoader(train, batch_size=20, sampler=sampler)
    share = DistributedSampler(held, WORLD, rank, shuffle=False)
    held_loader = DataLoader(held, batch_size=32, sampler=share)
    net = DistributedDataParallel(MiteCounter())
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for picture, mites in loader:
            loss = F.smooth_l1_loss(net(picture), mites)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            if rank == 0:
                print(f"step {step} loss {shown.item() / WORLD:.4f}", flush=True)
            step += 1
        guess = predict(net.module, held_loader, len(held))
        if rank == 0:
            mites = held.tensors[1]
            off = (guess - mites).abs().mean().item()
            right = (guess.round() == mites).float().mean().item()
            print(f"epoch {epoch} of {len(guess)} off {off:.4f} right {right:.4f}")
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    torch.multiprocessing.spawn(work, (args, port), nprocs=WORLD)


if __name__ == "__main__":
    main()
