"""Whale calls by hydrophones, with data parallelism on two ranks started here.

A sampler gives each rank its part, in a new order each epoch; gradients of two batches
are accumulated without communication in between; counts of the evaluation are summed
over the ranks, without the rows that pad a part.

    python ddp_hydrophones.py
"""

import argparse
import contextlib
import os
import socket

import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

SPECIES, SAMPLES = 4, 128


class Calls(Dataset):
    """Sweeps of different slope and bend, made when asked for."""

    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed * 100_000 + index)
        species = index % SPECIES
        start, phase = torch.rand(2, generator=generator).tolist()
        time = torch.linspace(0, 1, SAMPLES)
        slope = (8.0, -8.0, 0.0, 0.0)[species]
        bend = (0.0, 0.0, 10.0, 0.0)[species]
        sweep = (12 + 4 * start) * time + slope * time**2 + bend * time**3
        wave = torch.sin(6.2832 * (sweep + phase))
        return wave + 0.7 * torch.randn(SAMPLES, generator=generator), species


class CallNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 9, stride=2, padding=4)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.GroupNorm(4, width), nn.SiLU(),
                nn.Conv1d(width, width, 5, padding=2),
            )
            for _ in range(3)
        )  # fmt: skip
        self.head = nn.Linear(2 * width, SPECIES)

    def forward(self, wave):
        hidden = self.stem(wave[:, None])
        for block in self.blocks:
            hidden = F.avg_pool1d(hidden + block(hidden), 2)
        pooled = torch.cat([hidden.mean(2), hidden.amax(2)], 1)
        return self.head(pooled)


@torch.no_grad()
def evaluate(net, dataset, rank, world):
    part = Subset(dataset, range(rank, len(dataset), world))
    sums = torch.zeros(3)
    net.eval()
    for wave, species in DataLoader(part, batch_size=50):
        logits = net(wave)
        sums[0] += F.cross_entropy(logits, species, reduction="sum")
        sums[1] += (logits.argmax(1) == species).sum()
        sums[2] += len(species)
    net.train()
    dist.all_reduce(sums)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def work(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train, held = Calls(512, args.seed), Calls(202, args.seed + 1)
    sampler = DistributedSampler(train, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(train, batch_size=16, sampler=sampler, drop_last=True)
    net = DistributedDataParallel(CallNet())
    optimizer = torch.optim.AdamW(net.parameters(), lr=8e-3, weight_decay=0.02)
    updates = args.epochs * (len(loader) // args.accumulate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, updates)
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        shown = torch.zeros(())
        for index, (wave, species) in enumerate(loader):
            last = (index + 1) % args.accumulate == 0
            with contextlib.nullcontext() if last else net.no_sync():
                loss = F.cross_entropy(net(wave), species, label_smoothing=0.05)
                (loss / args.accumulate).backward()
            shown += loss.detach() / args.accumulate
            if not last:
                continue
            norm = nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            dist.all_reduce(shown)
            shown /= args.world
            if rank == 0:
                print(f"step {step} loss {shown:.4f} norm {norm:.3f}", flush=True)
            shown = torch.zeros(())
            step += 1
        loss, accuracy = evaluate(net.module, held, rank, args.world)
        if rank == 0:
            print(f"epoch {epoch} held {loss:.4f} accuracy {accuracy:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--world", type=int, default=2)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    torch.multiprocessing.spawn(work, (args, port), nprocs=args.world)


if __name__ == "__main__":
    main()
