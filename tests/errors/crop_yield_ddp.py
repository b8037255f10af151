"""Crop yield per field, data-parallel over two processes (gloo)."""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORLD = 2
COLS = 10


class Fields(Dataset):
    def __init__(self, n, seed):
        wg = torch.Generator().manual_seed(12)
        w1 = torch.randn(COLS, 6, generator=wg)
        w2 = torch.randn(6, generator=wg)
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, COLS, generator=g)
        self.y = torch.tanh(self.x @ w1 / COLS**0.5) @ w2 + 0.15 * torch.randn(
            n, generator=g
        )

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return i, self.x[i], self.y[i]


class YieldNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(COLS, 48),
            nn.ReLU(),
            nn.Linear(48, 48),
            nn.ReLU(),
            nn.Linear(48, 1),
        )

    def forward(self, x):
        return self.layers(x).squeeze(1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_error(net, data):
    net.eval()
    with torch.no_grad():
        e = (net(data.x) - data.y).pow(2).mean().item()
    net.train()
    return e


def worker(rank, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(100)

    train, test = Fields(960, 1), Fields(400, 2)
    sampler = DistributedSampler(
        train, num_replicas=WORLD, rank=rank, shuffle=True, seed=5
    )
    loader = DataLoader(train, batch_size=args.batch, sampler=sampler)
    model = DDP(YieldNet())
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    loss_fn = nn.MSELoss()

    orders = []
    for epoch in range(args.epochs):
        if args.fixed:
            sampler.set_epoch(epoch)
        order, total = [], torch.zeros(2)
        for idx, x, y in loader:
            loss = loss_fn(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            order += idx.tolist()
            total += torch.tensor([loss.item() * len(y), float(len(y))])
        orders.append(order)
        dist.all_reduce(total)
        if rank == 0:
            print(
                f"epoch {epoch:2d}  {len(loader)} steps  train {total[0] / total[1]:.4f}  "
                f"test {test_error(model.module, test):.4f}",
                flush=True,
            )

    if args.prove:
        same = sum(o == orders[0] for o in orders[1:])
        seen = len({i for o in orders for i in o})
        got = [None] * WORLD
        dist.all_gather_object(got, (same, seen))
        if rank == 0:
            for r, (s, k) in enumerate(got):
                print(
                    f"rank {r}: {s} of {args.epochs - 1} later epochs in the order of the first, "
                    f"{k} of {len(train)} fields met"
                )
            print("fault shows:", "yes" if any(s > 0 for s, _ in got) else "no")
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    mp.spawn(worker, args=(free_port(), args), nprocs=WORLD, join=True)


if __name__ == "__main__":
    main()
