# Hotel ratings by matrix factorisation with side features, DDP over two CPU processes.
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

GUESTS, HOTELS = 240, 80


def all_ratings():
    g = torch.Generator().manual_seed(314)
    taste = torch.randn(GUESTS, 4, generator=g)
    style = torch.randn(HOTELS, 4, generator=g)
    quality = 0.6 * torch.randn(HOTELS, generator=g)
    n = 7000
    guest = torch.randint(0, GUESTS, (n,), generator=g)
    hotel = torch.randint(0, HOTELS, (n,), generator=g)
    price = torch.randn(n, generator=g)
    r = 0.6 * (taste[guest] * style[hotel]).sum(1) + quality[hotel] - 0.3 * price
    r = r + 0.2 * torch.randn(n, generator=g)
    return guest, hotel, price, r


class RatingShard(Dataset):
    """The part of the table that one of `parts` processes reads."""

    def __init__(self, columns, part, parts):
        self.row_ids = torch.arange(len(columns[0]))[part::parts]
        self.columns = [c[self.row_ids] for c in columns]

    def __len__(self):
        return len(self.row_ids)

    def __getitem__(self, i):
        return tuple(c[i] for c in self.columns)


class RatingModel(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.guest = nn.Embedding(GUESTS, dim)
        self.hotel = nn.Embedding(HOTELS, dim)
        self.guest_bias = nn.Embedding(GUESTS, 1)
        self.hotel_bias = nn.Embedding(HOTELS, 1)
        self.price = nn.Linear(1, 1)
        for e in (self.guest, self.hotel):
            nn.init.normal_(e.weight, std=0.3)
        for e in (self.guest_bias, self.hotel_bias):
            nn.init.zeros_(e.weight)

    def forward(self, guest, hotel, price):
        dot = (self.guest(guest) * self.hotel(hotel)).sum(1)
        bias = self.guest_bias(guest) + self.hotel_bias(hotel)
        return dot + bias.squeeze(1) + self.price(price.unsqueeze(1)).squeeze(1)


def env_rank():
    return int(os.environ.get("RANK", 0))


def fit(rank, world, port, args):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)

    columns = all_ratings()
    train_cols = [c[:5600] for c in columns]
    test_cols = [c[5600:] for c in columns]
    part = rank if args.fixed else env_rank()
    shard = RatingShard(train_cols, part, world)
    loader = DataLoader(shard, batch_size=args.batch_size, shuffle=True, drop_last=True)

    model = DistributedDataParallel(RatingModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.2)
    loss_fn = nn.MSELoss()

    def test_rmse():
        with torch.no_grad():
            pred = model.module(*test_cols[:3])
        return (pred - test_cols[3]).pow(2).mean().sqrt().item()

    for epoch in range(args.epochs):
        total = torch.zeros(())
        for guest, hotel, price, rating in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(guest, hotel, price), rating)
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total)
        if rank == 0 and (epoch % 2 == 1 or epoch == args.epochs - 1):
            print(
                f"epoch {epoch + 1:2d}: train mse {total.item() / world:.4f}, "
                f"test rmse {test_rmse():.4f}"
            )

    if args.prove:
        mine = torch.zeros(len(train_cols[0]))
        mine[shard.row_ids] = 1.0
        dist.all_reduce(mine)
        if rank == 0:
            unread, twice = int((mine == 0).sum()), int((mine > 1).sum())
            print(
                f"of {len(mine)} training rows, {unread} read by no process, "
                f"{twice} read by both"
            )
            print("fault shows:", "yes" if unread > world or twice > 0 else "no")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=70)
    parser.add_argument("--lr", type=float, default=2e-2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(fit, args=(2, port, args), nprocs=2)
