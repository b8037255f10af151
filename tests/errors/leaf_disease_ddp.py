"""
Leaf disease classifier, data parallel on CPU workers (gloo).
Launches its own processes: python leaf_disease_ddp.py --steps 80
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORLD = 2
CLASSES = ["healthy", "rust", "blight", "mildew"]


class LeafDataset(Dataset):
    """Green leaf with spots; the number, colour and size of spots depend on the disease."""

    def __init__(self, n, seed, size=32):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, len(CLASSES), (n,), generator=g)
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        pics = torch.zeros(n, 3, size, size)
        pics[:, 1] = 0.6
        tint = {1: (0.5, -0.2, 0.0), 2: (0.1, -0.4, 0.0), 3: (0.4, 0.3, 0.4)}
        for i in range(n):
            k = int(self.labels[i])
            spots = 0 if k == 0 else int(torch.randint(2, 7, (1,), generator=g))
            for _ in range(spots):
                cy, cx = torch.randint(0, size, (2,), generator=g).tolist()
                r = float(torch.rand(1, generator=g)) * 2 + (3 if k == 2 else 1)
                m = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
                for c in range(3):
                    pics[i, c][m] += tint[k][c]
        self.pics = pics + 0.25 * torch.randn(pics.shape, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        return self.pics[idx], self.labels[idx], idx


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(CLASSES)),
    )


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hit = torch.zeros(2)
    for x, y, _ in loader:
        hit += torch.tensor([(model(x).argmax(1) == y).sum().item(), len(y)])
    dist.all_reduce(hit)
    return (hit[0] / hit[1]).item()


def worker(rank, args, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(100)

    train_ds = LeafDataset(512, seed=1)
    test_ds = LeafDataset(128, seed=2)
    sampler = DistributedSampler(train_ds, WORLD, rank, shuffle=True, seed=100)
    train_loader = DataLoader(train_ds, batch_size=16, sampler=sampler)
    test_loader = DataLoader(
        test_ds,
        batch_size=32,
        sampler=DistributedSampler(test_ds, WORLD, rank, shuffle=False),
    )

    model = DDP(build_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()

    seen = []
    step, epoch = 0, 0
    while step < args.steps:
        model.train()
        if args.fixed:
            sampler.set_epoch(epoch)
        order, total, n = [], 0.0, 0
        for x, y, idx in train_loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            order += idx.tolist()
            total += loss.item()
            n += 1
            step += 1
            if step >= args.steps:
                break
        seen.append(order)
        acc = evaluate(model, test_loader)
        if rank == 0:
            print(
                f"[{epoch}] step {step} loss {total / n:.3f} test acc {acc:.3f}",
                flush=True,
            )
        epoch += 1

    if args.prove and rank == 0:
        k = min(len(o) for o in seen)
        same = len(seen) > 1 and all(o[:k] == seen[0][:k] for o in seen[1:])
        print("fault shows:", "yes" if same else "no", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    mp.spawn(worker, args=(args, free_port()), nprocs=WORLD)
