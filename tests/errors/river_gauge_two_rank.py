"""River stage from upstream rain gauges, trained data-parallel on two CPU processes."""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class GaugeDataset(Dataset):
    """48 hours of rain at 5 gauges -> stage at the bridge."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        burst = (torch.rand(n, 48, 5, generator=g) < 0.08).float()
        self.rain = burst * torch.rand(n, 48, 5, generator=g) * 4
        age = torch.arange(47, -1, -1).float()
        kernels = torch.stack(
            [
                torch.exp(-(((age - d) / w) ** 2))
                for d, w in zip((4, 9, 14, 22, 30), (3.0, 4.0, 5.0, 6.0, 8.0))
            ],
            1,
        )
        flow = (self.rain * kernels).sum((1, 2))
        soil = self.rain[:, :24].sum((1, 2)) * 0.02
        self.stage = (0.3 * flow * (1 + soil)).sqrt() + 0.05 * torch.randn(
            n, generator=g
        )

    def __len__(self):
        return len(self.stage)

    def __getitem__(self, i):
        return self.rain[i], self.stage[i], i


class StageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(5, 24, 7, stride=2),
            nn.GELU(),
            nn.Conv1d(24, 24, 5, stride=2),
            nn.GELU(),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(24 * 9, 48), nn.GELU(), nn.Linear(48, 1)
        )

    def forward(self, rain):
        return self.head(self.conv(rain.transpose(1, 2))).squeeze(-1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        err = model(data.rain) - data.stage
    model.train()
    return err.pow(2).mean().sqrt().item()


def worker(rank, world, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(13)

    train_data, test_data = GaugeDataset(640, seed=1), GaugeDataset(400, seed=2)
    sampler = DistributedSampler(
        train_data, num_replicas=world, rank=rank, shuffle=True, seed=7
    )
    loader = DataLoader(train_data, batch_size=32, sampler=sampler, drop_last=True)
    model = DDP(StageNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, args.epochs * len(loader)
    )
    loss_fn = nn.SmoothL1Loss(beta=0.2)

    visited = []
    for epoch in range(args.epochs):
        if args.fixed:
            sampler.set_epoch(epoch)
        total, rows = 0.0, []
        for rain, stage, idx in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(rain), stage)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            total += loss.item()
            rows.append(idx)
        visited.append(torch.cat(rows))

        mean = torch.tensor(total / len(loader))
        dist.all_reduce(mean)
        if rank == 0 and (epoch % 2 == 0 or epoch == args.epochs - 1):
            print(
                f"epoch {epoch:2d}  train loss {mean.item() / world:.4f}  "
                f"test rmse {evaluate(model.module, test_data):.4f}",
                flush=True,
            )
        dist.barrier()

    if args.prove:
        same = float(
            len(visited) > 1 and all(torch.equal(v, visited[0]) for v in visited[1:])
        )
        seen = float(len(torch.cat(visited).unique()))
        stats = torch.tensor([same, seen])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"ranks whose row order never changed: {int(stats[0])} of {world}")
            print(
                f"rows met per rank: {stats[1].item() / world:.0f} of {len(train_data)}"
            )
            print("fault shows:", "yes" if stats[0] > 0 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    options = p.parse_args()
    mp.spawn(worker, args=(2, free_port(), options), nprocs=2, join=True)
