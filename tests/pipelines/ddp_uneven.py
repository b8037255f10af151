"""Two ranks with different amounts of data: Join lets the one with less wait for the
other. Gradients are accumulated over two micro-batches (the first under no_sync) and
an auxiliary branch has work only in batches with a second label.

    python ddp_uneven.py --steps 24
"""

import argparse
import contextlib
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from ranks import leave_group


class ClaimModel(nn.Module):
    """Insurance claims: the kind of each, and in audited batches, whether it is fraud.
    Categories are embedded, amounts are normalised."""

    def __init__(self, regions=12, products=8, amounts=5, width=40):
        super().__init__()
        self.region = nn.Embedding(regions, 6)
        self.product = nn.Embedding(products, 6)
        self.amounts = nn.Sequential(nn.LayerNorm(amounts), nn.Linear(amounts, 12))
        self.trunk = nn.Sequential(nn.Linear(24, width), nn.SELU())
        self.kind = nn.Linear(width, 4)
        self.fraud = nn.Sequential(nn.Linear(width, 12), nn.SELU(), nn.Linear(12, 1))

    def forward(self, region, product, amounts, audited):
        parts = [self.region(region), self.product(product), self.amounts(amounts)]
        h = self.trunk(torch.cat(parts, dim=1))
        return self.kind(h), self.fraud(h).squeeze(1) if audited else None


def claims(count, generator):
    region = torch.randint(0, 12, (count,), generator=generator)
    product = torch.randint(0, 8, (count,), generator=generator)
    amounts = torch.randn(count, 5, generator=generator)
    kind = (product % 2) * 2 + (amounts[:, 0] > amounts[:, 1]).long()
    fraud = ((amounts[:, 2] > 0.5) & (region < 6)) | (amounts[:, 3] > 1.3)
    return region, product, amounts, kind, fraud.float()


def micro_batches(rank, count, size, seed):
    generator = torch.Generator().manual_seed(seed * 10 + rank)
    for _ in range(count):
        audited = torch.rand((), generator=generator).item() < 0.6
        yield claims(size, generator), audited


def loss_of(model, batch, audited):
    region, product, amounts, kind, fraud = batch
    kind_logits, fraud_logits = model(region, product, amounts, audited)
    loss = cross_entropy(kind_logits, kind)
    if fraud_logits is not None:
        loss = loss + 0.5 * bce(fraud_logits, fraud)
    return loss


def train(rank, world, port, args):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", address, rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(ClaimModel(), find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    updates = args.steps - 3 * rank  # the last rank has the least data
    micro = micro_batches(rank, updates * args.accumulate, args.batch_size, args.seed)
    with model.join():
        running = 0.0
        for number, (batch, audited) in enumerate(micro):
            last = (number + 1) % args.accumulate == 0
            with contextlib.nullcontext() if last else model.no_sync():
                loss = loss_of(model, batch, audited) / args.accumulate
                loss.backward()
            running += loss.item()
            if not last:
                continue
            optimizer.step()
            optimizer.zero_grad()
            update = number // args.accumulate
            if rank == 0 and (update % 4 == 0 or update == updates - 1):
                print(f"update {update} loss {running:.6f}", flush=True)
            running = 0.0

    if rank == 0:
        batch = claims(500, torch.Generator().manual_seed(999))
        model.eval()
        with torch.no_grad():
            kind, fraud = model.module(*batch[:3], audited=True)
        kind_right = (kind.argmax(1) == batch[3]).float().mean().item()
        fraud_right = ((fraud > 0) == batch[4].bool()).float().mean().item()
        print(f"held out: kind {kind_right:.3f} fraud {fraud_right:.3f}", flush=True)
    dist.barrier()
    leave_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24, help="updates of rank 0")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=10)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(train, (args.nproc, port, args), nprocs=args.nproc)
