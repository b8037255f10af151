"""Rating prediction with biases + embeddings, trained on two processes (gloo).

    python movie_ratings_ddp.py --steps 100
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

N_USERS, N_MOVIES, DIM = 120, 80, 12


class Ratings(Dataset):
    def __init__(self, n, seed):
        world = torch.Generator().manual_seed(99)
        taste = torch.randn(N_USERS, 4, generator=world)
        style = torch.randn(N_MOVIES, 4, generator=world)
        mood = 0.4 * torch.randn(N_USERS, generator=world)
        g = torch.Generator().manual_seed(seed)
        self.user = torch.randint(0, N_USERS, (n,), generator=g)
        self.movie = torch.randint(0, N_MOVIES, (n,), generator=g)
        r = 3.2 + mood[self.user] + 0.5 * (taste[self.user] * style[self.movie]).sum(1)
        self.rating = (r + 0.3 * torch.randn(n, generator=g)).clamp(1, 5)

    def __len__(self):
        return len(self.rating)

    def __getitem__(self, i):
        return i, self.user[i], self.movie[i], self.rating[i]


class BiasedMF(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.user = nn.Embedding(N_USERS, DIM)
        self.movie = nn.Embedding(N_MOVIES, DIM)
        self.user_bias = nn.Embedding(N_USERS, 1)
        self.movie_bias = nn.Embedding(N_MOVIES, 1)
        self.mix = nn.Sequential(nn.Linear(3 * DIM, 32), nn.ReLU(), nn.Linear(32, 1))
        for emb in (self.user, self.movie):
            nn.init.normal_(emb.weight, std=0.3)
        for emb in (self.user_bias, self.movie_bias):
            nn.init.zeros_(emb.weight)
        self.register_buffer("mean", torch.tensor(mean))

    def forward(self, u, m):
        a, b = self.user(u), self.movie(m)
        out = (
            self.mix(torch.cat([a, b, a * b], 1))
            + self.user_bias(u)
            + self.movie_bias(m)
        )
        return out.squeeze(1) + self.mean


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rmse(model, data):
    model.eval()
    with torch.no_grad():
        err = model(data.user, data.movie) - data.rating
    model.train()
    return err.pow(2).mean().sqrt().item()


def run(rank, world_size, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(42)

    train_set, test_set = Ratings(1280, 1), Ratings(600, 2)
    model = DDP(BiasedMF(train_set.rating.mean().item()))
    opt = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.02)
    sampler = DistributedSampler(
        train_set, num_replicas=world_size, rank=rank, shuffle=True, seed=42
    )
    loader = DataLoader(
        train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True
    )

    seen = []  # rows that this rank went through, epoch by epoch
    step = epoch = 0
    while step < args.steps:
        if args.fixed:
            sampler.set_epoch(epoch)
        total = torch.zeros(2)
        rows = []
        for row, user, movie, rating in loader:
            loss = nn.functional.mse_loss(model(user, movie), rating)
            opt.zero_grad()
            loss.backward()
            opt.step()
            rows.append(row)
            total += torch.tensor([loss.item(), 1.0])
            step += 1
            if step == args.steps:
                break
        seen.append(torch.cat(rows))
        dist.all_reduce(total)
        if rank == 0:
            print(
                f"epoch {epoch} step {step} train mse {total[0] / total[1]:.4f} "
                f"test rmse {rmse(model.module, test_set):.4f}",
                flush=True,
            )
        epoch += 1

    if args.prove:
        n = min(len(s) for s in seen)
        same = torch.tensor(
            float(
                len(seen) > 1 and all(torch.equal(seen[0][:n], s[:n]) for s in seen[1:])
            )
        )
        dist.all_reduce(same, op=dist.ReduceOp.MIN)
        if rank == 0:
            print(
                f"# rows in the same order in all {len(seen)} epochs on both ranks: {bool(same)}"
            )
            print("fault shows:", "yes" if same else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    mp.spawn(run, args=(2, free_port(), args), nprocs=2, join=True)
