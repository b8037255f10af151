"""Two-process DDP training of a rectified-flow generator on a mixture of 2-D shapes."""
import argparse
import os
import random
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class ShapeDataset(Dataset):
    def __init__(self, n=2048, seed=0):
        g = np.random.default_rng(seed)
        label = g.integers(0, 3, n)
        u = g.uniform(0, 2 * np.pi, n)
        ring = np.stack([np.cos(u), np.sin(u)], 1)
        cross = np.where(
            (u > np.pi)[:, None],
            np.stack([np.cos(2 * u), 0 * u], 1),
            np.stack([0 * u, np.cos(2 * u)], 1),
        )
        wave = np.stack([u / np.pi - 1, 0.6 * np.sin(2 * u)], 1)
        pts = np.choose(label[:, None], [ring, cross, wave]) + 0.03 * g.normal(
            size=(n, 2)
        )
        self.x = torch.tensor(pts, dtype=torch.float32)
        self.y = torch.tensor(label)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class VelocityNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.emb = nn.Embedding(3, 16)
        self.register_buffer("freqs", 2.0 ** torch.arange(4) * np.pi)
        self.body = nn.Sequential(
            nn.Linear(2 + 16 + 8, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 2),
        )

    def forward(self, x, t, y):
        ang = t[:, None] * self.freqs
        return self.body(torch.cat([x, ang.sin(), ang.cos(), self.emb(y)], dim=1))


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def sample_time(n):
    return torch.sigmoid(torch.randn(n))


def flow_loss(model, x1, y):
    t = sample_time(x1.shape[0])
    x0 = torch.randn_like(x1)
    xt = (1 - t)[:, None] * x0 + t[:, None] * x1
    v = model(xt, t, y)
    return ((v - (x1 - x0)) ** 2).mean(), t


@torch.no_grad()
def generate(model, y, steps=30, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(len(y), 2, generator=g)
    for k in range(steps):
        x = x + model(x, torch.full((len(y),), k / steps), y) / steps
    return x


@torch.no_grad()
def mean_nearest_distance(model, data):
    total = 0.0
    for c in range(3):
        ref = data.x[data.y == c]
        fake = generate(model, torch.full((256,), c))
        total += torch.cdist(fake, ref).min(1).values.mean().item()
    return total / 3


def gather(t):
    out = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(out, t)
    return torch.stack(out)


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    set_seed(args.seed + rank if args.fixed else args.seed)

    data = ShapeDataset(seed=args.seed)
    sampler = DistributedSampler(
        data,
        num_replicas=world,
        rank=rank,
        shuffle=True,
        seed=args.seed,
        drop_last=True,
    )
    loader = DataLoader(
        data, batch_size=args.batch_size, sampler=sampler, drop_last=True
    )
    model = DDP(VelocityNet())
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)

    step, epoch, shared, seen = 0, 0, 0, 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss, t = flow_loss(model, x, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if args.prove:
                both = gather(t)
                shared += (both[0] == both[1]).sum().item()
                seen += both.shape[1]
            if step % 40 == 0 or step == args.steps - 1:
                avg = gather(loss.detach().view(1)).mean().item()
                if rank == 0:
                    print(f"step {step:4d}  epoch {epoch}  loss {avg:.4f}", flush=True)
            step += 1
            if step >= args.steps:
                break
        epoch += 1

    if rank == 0:
        print(
            f"mean distance of samples to the data: {mean_nearest_distance(model.module, data):.4f}"
        )
        if args.prove:
            print(f"flow times drawn on both processes alike: {shared} of {seen}")
            print("fault shows:", "yes" if shared > seen // 2 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=64, help="per process")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    a = parser.parse_args()
    mp.spawn(worker, args=(2, free_port(), a), nprocs=2, join=True)
