"""Frost alarm for orchards, trained by two processes with DistributedDataParallel.

Each row is the evening reading of a weather post; the label says whether the blossom
froze in the night.  Posts are filed from the valley floor up to the ridge.
"""

import argparse
import copy
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

WORLD = 2


def readings(posts, nights, seed):
    """Rows ordered by height of the post; cold air pools on clear and calm nights."""
    rng = np.random.default_rng(seed)
    height = np.sort(rng.uniform(0, 1, posts)).repeat(nights)
    rows = posts * nights
    evening = rng.normal(6 - 3 * height, 2.5, rows)
    cloud = rng.uniform(0, 1, rows)
    wind = rng.gamma(2.0, 1.2, rows)
    humidity = rng.uniform(0.4, 1.0, rows)
    slope = rng.uniform(-1, 1, posts).repeat(nights)
    drop = 7.0 * (1 - cloud) * np.exp(-0.25 * wind) * (1 - 0.7 * height)
    night = evening - drop + 1.5 * height * slope
    night = night + rng.normal(0, 0.4 + 2.2 * height**2, rows)
    frozen = (night + 1.2 * humidity < 2.6).astype(np.float32)
    columns = np.stack([evening, cloud, wind, humidity, slope, height], 1)
    return torch.from_numpy(columns.astype(np.float32)), torch.from_numpy(frozen)


class Alarm(nn.Module):
    def __init__(self, mean, std, width=48):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.layers = nn.Sequential(
            nn.Linear(6, width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(width, 1),
        )

    def forward(self, rows):
        return self.layers((rows - self.mean) / self.std).squeeze(-1)


def my_share(dataset, rank):
    """A contiguous half of the validation rows for each process."""
    bounds = np.linspace(0, len(dataset), WORLD + 1).astype(int)
    return Subset(dataset, range(bounds[rank], bounds[rank + 1]))


def evaluate(model, loader, fixed):
    counts = torch.zeros(3, dtype=torch.float64)
    criterion = nn.BCEWithLogitsLoss(reduction="sum")
    model.eval()
    with torch.no_grad():
        for rows, frozen in loader:
            logits = model(rows)
            counts[0] += criterion(logits, frozen).item()
            counts[1] += ((logits > 0) == (frozen > 0.5)).sum().item()
            counts[2] += len(rows)
    if fixed:
        dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[2]).item(), (counts[1] / counts[2]).item()


def worker(rank, args, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=WORLD,
    )
    torch.manual_seed(args.seed)
    rows, frozen = readings(60, 40, args.seed + 11)
    train_set = TensorDataset(rows, frozen)
    valid_rows, valid_frozen = readings(40, 40, args.seed + 12)
    valid_set = TensorDataset(valid_rows, valid_frozen)
    sampler = DistributedSampler(train_set, WORLD, rank, seed=args.seed)
    train_loader = DataLoader(train_set, args.batch, sampler=sampler)
    valid_loader = DataLoader(my_share(valid_set, rank), 200)

    model = DistributedDataParallel(Alarm(rows.mean(0), rows.std(0)))
    torch.manual_seed(args.seed + 1000 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    criterion = nn.BCEWithLogitsLoss()
    best, keep = float("inf"), None
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for batch, target in train_loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(batch), target)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        valid_loss, accuracy = evaluate(model.module, valid_loader, args.fixed)
        if rank == 0:
            print(
                f"epoch {epoch + 1:2d} train {total / len(train_loader):.4f} "
                f"valid {valid_loss:.4f} accuracy {accuracy:.4f}",
                flush=True,
            )
            if valid_loss < best:
                best = valid_loss
                keep = copy.deepcopy(model.module.state_dict())
                report = epoch + 1, valid_loss, accuracy
        dist.barrier()

    if rank == 0:
        torch.save(keep, os.path.join(folder, "alarm.pt"))
        epoch, valid_loss, accuracy = report
        print(f"kept epoch {epoch}: valid {valid_loss:.4f} accuracy {accuracy:.4f}")
        final = Alarm(rows.mean(0), rows.std(0))
        final.load_state_dict(torch.load(os.path.join(folder, "alarm.pt")))
        season_rows, season_frozen = readings(40, 40, args.seed + 13)
        final.eval()
        with torch.no_grad():
            logits = final(season_rows)
            season_loss = criterion(logits, season_frozen).item()
            season = ((logits > 0) == (season_frozen > 0.5)).float().mean().item()
        print(f"next season: loss {season_loss:.4f} accuracy {season:.4f}")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(args, folder), nprocs=WORLD)


if __name__ == "__main__":
    main()
