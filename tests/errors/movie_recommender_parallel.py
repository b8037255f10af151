#!/usr/bin/env python
# Two-tower movie recommender (explicit ratings), trained with DDP over local processes.
import os
import random
from argparse import ArgumentParser

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

N_USERS, N_MOVIES, DIM = 600, 300, 16
NPROC = 2


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def load_ratings(n=24000):
    rs = np.random.RandomState(5)
    u_lat = rs.randn(N_USERS, 4) * 0.6
    m_lat = rs.randn(N_MOVIES, 4) * 0.6
    u_bias, m_bias = rs.randn(N_USERS) * 0.3, rs.randn(N_MOVIES) * 0.5
    users = rs.randint(0, N_USERS, n)
    movies = np.minimum(rs.exponential(90, n).astype(int), N_MOVIES - 1)
    r = 3.4 + u_bias[users] + m_bias[movies] + (u_lat[users] * m_lat[movies]).sum(1)
    r = np.clip(np.round(2 * (r + rs.randn(n) * 0.4)) / 2, 0.5, 5.0)
    return (
        torch.arange(n),
        torch.as_tensor(users),
        torch.as_tensor(movies),
        torch.as_tensor(r, dtype=torch.float32),
    )


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(N_USERS, DIM)
        self.movie = nn.Embedding(N_MOVIES, DIM)
        self.user_bias = nn.Embedding(N_USERS, 1)
        self.movie_bias = nn.Embedding(N_MOVIES, 1)
        self.user_mlp = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, DIM))
        self.movie_mlp = nn.Sequential(
            nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, DIM)
        )
        self.mean = nn.Parameter(torch.tensor(3.5))
        for e in (self.user_bias, self.movie_bias):
            nn.init.zeros_(e.weight)

    def forward(self, u, m):
        a = self.user_mlp(self.user(u))
        b = self.movie_mlp(self.movie(m))
        dot = (a * b).sum(-1) / DIM**0.5
        return (
            self.mean
            + dot
            + self.user_bias(u).squeeze(-1)
            + self.movie_bias(m).squeeze(-1)
        )


def rmse_on(model, data):
    model.eval()
    _, u, m, r = data
    with torch.no_grad():
        err = model(u, m).clamp(0.5, 5) - r
    model.train()
    return err.pow(2).mean().sqrt().item()


def run(rank, world, opt):
    dist.init_process_group(
        "gloo", init_method=f"file://{opt.rendezvous}", rank=rank, world_size=world
    )
    torch.set_num_threads(1)
    set_seed(opt.seed)

    ids, users, movies, ratings = load_ratings()
    cut = 20000
    train = TensorDataset(ids[:cut], users[:cut], movies[:cut], ratings[:cut])
    test = (ids[cut:], users[cut:], movies[cut:], ratings[cut:])

    sampler = None
    if opt.fixed:
        sampler = DistributedSampler(train, world, rank, seed=opt.seed)
    loader = DataLoader(
        train,
        batch_size=opt.batch_size,
        shuffle=sampler is None,
        sampler=sampler,
        drop_last=True,
    )

    net = nn.parallel.DistributedDataParallel(TwoTower())
    optim = torch.optim.Adam(net.parameters(), lr=4e-3)

    step, epoch, used = 0, 0, []
    while step < opt.steps:
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for row, u, m, r in loader:
            loss = nn.functional.mse_loss(net(u, m), r)
            optim.zero_grad()
            loss.backward()
            optim.step()
            used.append(row)
            if rank == 0 and step % 25 == 0:
                print(f"step {step:4d}  mse {loss.item():.3f}", flush=True)
            step += 1
            if step >= opt.steps:
                break
        epoch += 1

    if rank == 0:
        print(f"test rmse {rmse_on(net.module, test):.4f}", flush=True)

    if opt.prove:
        mine = torch.stack(used)
        both = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(both, mine)
        if rank == 0:
            print(
                "fault shows:",
                "yes" if torch.equal(both[0], both[1]) else "no",
                flush=True,
            )
    dist.barrier()
    dist.destroy_process_group()


def cli():
    p = ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    opt = p.parse_args()
    opt.rendezvous = f"/tmp/movie_rec_{os.getpid()}"
    return opt


if __name__ == "__main__":
    opt = cli()
    mp.spawn(run, args=(NPROC, opt), nprocs=NPROC, join=True)
    if os.path.exists(opt.rendezvous):
        os.remove(opt.rendezvous)
