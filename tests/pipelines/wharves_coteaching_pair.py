"""Hull types from radar returns whose labels were typed in by busy harbour clerks.

Two differently built networks, one per process, see the same batches.  Each picks the
returns that look plausible to it, and the other one trains on them.
"""
import argparse
import math
import os
import tempfile
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

CLASSES, LENGTH = 6, 40


def radar_returns(count, seed, flip):
    """Profiles per hull type; a share `flip` of the labels is replaced at random."""
    law = torch.Generator().manual_seed(8)
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, LENGTH)
    centre = torch.rand(CLASSES, 3, generator=law) * 1.5 - 0.75
    height = 0.5 + torch.rand(CLASSES, 3, generator=law)
    hull = torch.randint(0, CLASSES, (count,), generator=g)
    shift = 0.06 * torch.randn(count, 1, generator=g)
    c = centre[hull] + shift
    gain = height[hull] * (1 + 0.2 * torch.randn(count, 3, generator=g))
    x = (gain[..., None] * torch.exp(-(((axis - c[..., None]) / 0.12) ** 2))).sum(1)
    x = x + 0.25 * torch.randn(count, LENGTH, generator=g)
    swap = torch.rand(count, generator=g) < flip
    label = torch.where(swap, torch.randint(0, CLASSES, (count,), generator=g), hull)
    return SimpleNamespace(x=x, label=label, hull=hull)


def build(rank):
    """A convolutional net on one side, a wide perceptron on the other."""
    if rank == 0:
        return nn.Sequential(
            nn.Unflatten(1, (1, LENGTH)),
            nn.Conv1d(1, 16, 5, padding=2),
            nn.BatchNorm1d(16),
            nn.LeakyReLU(0.05),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 32, 5, padding=2),
            nn.BatchNorm1d(32),
            nn.LeakyReLU(0.05),
            nn.AdaptiveAvgPool1d(5),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(160, CLASSES),
        )
    return nn.Sequential(
        nn.Linear(LENGTH, 192),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(192, 96),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(96, CLASSES),
    )


def exchange(mine):
    """The other process's tensor of the same shape."""
    both = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    return both[1 - dist.get_rank()]


def keep_rate(epoch, ramp, forget):
    return 1.0 - forget * min(1.0, epoch / ramp)


@torch.no_grad()
def probabilities(net, x):
    net.eval()
    p = torch.cat([net(part).softmax(1) for part in x.split(512)])
    net.train()
    return p


def augment(x, g):
    x = x * (1 + 0.1 * torch.randn(len(x), 1, generator=g))
    return x + 0.1 * torch.randn(x.shape, generator=g)


def train_epoch(net, optimizer, data, order, own, share):
    """Returns the share of picked returns whose label agrees with the hull."""
    agreed = picked = 0
    shuffled = torch.randperm(len(data.x), generator=order)
    for index in shuffled.split(128):
        x, label = data.x[index], data.label[index]
        net.eval()
        with torch.no_grad():
            doubt = F.cross_entropy(net(x), label, reduction="none")
        net.train()
        count = max(1, math.ceil(share * len(index)))
        chosen = exchange(doubt.argsort()[:count].contiguous())
        loss = F.cross_entropy(net(augment(x[chosen], own)), label[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        agreed += (label[chosen] == data.hull[index][chosen]).sum().item()
        picked += count
    return agreed / picked


def report(rank, epoch, share, purity, acc):
    row = torch.tensor([purity, acc])
    rows = [torch.empty(2) for _ in range(2)] if rank == 0 else None
    dist.gather(row, rows, dst=0)
    if rank == 0:
        (pa, aa), (pb, ab) = rows[0].tolist(), rows[1].tolist()
        print(
            f"epoch {epoch:2d}  kept {share:.2f}  agreeing labels {pa:.3f}/{pb:.3f}  "
            f"noisy-validation accuracy {aa:.3f}/{ab:.3f}",
            flush=True,
        )


def work(rank, args, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    torch.manual_seed(31 + rank)
    train = radar_returns(1600, 1, args.flip)
    valid = radar_returns(600, 2, args.flip)
    test = radar_returns(900, 3, 0.0)

    net = build(rank)
    if rank == 0:
        optimizer = torch.optim.SGD(
            net.parameters(), lr=0.05, momentum=0.9, nesterov=True
        )
    else:
        optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, args.epochs, power=0.9)
    order = torch.Generator().manual_seed(64)
    own = torch.Generator().manual_seed(640 + rank)

    forget = args.flip * (1 - 1 / CLASSES)
    for epoch in range(args.epochs):
        share = keep_rate(epoch, args.ramp, forget)
        purity = train_epoch(net, optimizer, train, order, own, share)
        schedule.step()
        hits = probabilities(net, valid.x).argmax(1) == valid.label
        report(rank, epoch, share, purity, hits.float().mean().item())

    torch.save(net.state_dict(), os.path.join(folder, f"net{rank}.pt"))
    mine = probabilities(net, test.x)
    together = 0.5 * (mine + exchange(mine))
    single = (mine.argmax(1) == test.label).float().mean().item()
    joint = (together.argmax(1) == test.label).float().mean().item()
    for turn in range(2):
        if turn == rank:
            print(f"test accuracy of net {rank}: {single:.3f}", flush=True)
        dist.barrier()
    if rank == 0:
        print(f"test accuracy of the pair: {joint:.3f}")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--ramp", type=int, default=4)
    parser.add_argument("--flip", type=float, default=0.45)
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="wharves_")
    mp.spawn(work, args=(args, folder), nprocs=2, join=True)


if __name__ == "__main__":
    main()
