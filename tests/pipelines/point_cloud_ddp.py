"""PointNet-like classifier for simple solids, DistributedDataParallel on two gloo ranks."""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler

CLASSES = ["sphere", "box", "cylinder", "torus", "cone"]
POINTS = 128


def sample_solid(kind, rng):
    u, v = rng.uniform(0, 2 * np.pi, POINTS), rng.uniform(-1, 1, POINTS)
    if kind == 0:
        s = np.sqrt(1 - v**2)
        p = np.stack([s * np.cos(u), s * np.sin(u), v], 1)
    elif kind == 1:
        p = rng.uniform(-1, 1, (POINTS, 3))
        p[np.arange(POINTS), rng.integers(0, 3, POINTS)] = rng.choice([-1, 1], POINTS)
    elif kind == 2:
        p = np.stack([np.cos(u), np.sin(u), v], 1)
    elif kind == 3:
        w = rng.uniform(0, 2 * np.pi, POINTS)
        p = np.stack(
            [
                (1 + 0.4 * np.cos(w)) * np.cos(u),
                (1 + 0.4 * np.cos(w)) * np.sin(u),
                0.4 * np.sin(w),
            ],
            1,
        )
    else:
        r = (1 - v) / 2
        p = np.stack([r * np.cos(u), r * np.sin(u), v], 1)
    p = p * rng.uniform(0.7, 1.3, 3)
    p = p - p.mean(0)
    return p / np.linalg.norm(p, axis=1).max()


class Solids(Dataset):
    def __init__(self, n, seed, augment):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(CLASSES), n)
        self.points = np.stack([sample_solid(k, rng) for k in self.labels]).astype(
            np.float32
        )
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        p = torch.from_numpy(self.points[i])
        if self.augment:
            angle = 2 * np.pi * torch.rand(())
            c, s = torch.cos(angle), torch.sin(angle)
            turn = torch.stack([torch.stack([c, -s]), torch.stack([s, c])])
            p = torch.cat([p[:, :2] @ turn.T, p[:, 2:]], 1)
        p = p + 0.02 * torch.randn_like(p) if self.augment else p
        return p, int(self.labels[i])


class PointNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.local = nn.Sequential(
            nn.Linear(3, 48),
            nn.LayerNorm(48),
            nn.ReLU(),
            nn.Linear(48, 96),
            nn.LayerNorm(96),
            nn.ReLU(),
            nn.Linear(96, 128),
        )
        self.head = nn.Sequential(
            nn.LayerNorm(128),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, n_classes),
        )

    def forward(self, points):
        return self.head(self.local(points).amax(dim=1))


def train_one_epoch(model, loader, optimizer):
    model.train()
    stats = torch.zeros(2, dtype=torch.float64)
    for points, label in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(points), label, label_smoothing=0.05)
        loss.backward()
        optimizer.step()
        stats += torch.tensor(
            [loss.item() * len(label), len(label)], dtype=torch.float64
        )
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    stats = torch.zeros(2, dtype=torch.float64)
    for points, label in loader:
        hit = (model.module(points).argmax(1) == label).sum().item()
        stats += torch.tensor([hit, len(label)], dtype=torch.float64)
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def worker(rank, world, args, rendezvous, checkpoint):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world
    )
    torch.manual_seed(args.seed)
    model = DDP(PointNet(len(CLASSES)))
    torch.manual_seed(
        args.seed + 100 + rank
    )  # augmentation and dropout differ between ranks

    train_set = Solids(640, seed=1, augment=True)
    valid_set = Solids(201, seed=2, augment=False)
    sampler = DistributedSampler(train_set, world, rank, shuffle=True, seed=args.seed)
    train_loader = DataLoader(train_set, batch_size=args.batch, sampler=sampler)
    # plain striding: every validation cloud is counted once, no padding
    valid_loader = DataLoader(
        Subset(valid_set, range(rank, len(valid_set), world)), batch_size=64
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    best = -1.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_one_epoch(model, train_loader, optimizer)
        scheduler.step()
        acc = validate(model, valid_loader)
        if rank == 0:
            print(
                f"epoch {epoch}: loss {loss:.4f} validation accuracy {acc:.3f}",
                flush=True,
            )
            if acc > best:
                torch.save(model.module.state_dict(), checkpoint)
        best = max(best, acc)
    dist.barrier()
    model.module.load_state_dict(torch.load(checkpoint, weights_only=True))
    acc = validate(model, valid_loader)
    if rank == 0:
        print(f"best checkpoint reloaded: {acc:.3f}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16, help="per rank")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(
            worker,
            args=(
                args.world_size,
                args,
                os.path.join(folder, "rendezvous"),
                os.path.join(folder, "best.pt"),
            ),
            nprocs=args.world_size,
            join=True,
        )


if __name__ == "__main__":
    main()
