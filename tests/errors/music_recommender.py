"""
Implicit-feedback recommender (two towers), trained data-parallel on 2 CPU ranks with gloo.
    python music_recommender.py --steps 120
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

USERS, TRACKS = 400, 600


class Plays(Dataset):
    def __init__(self, n=3840, seed=0):
        g = torch.Generator().manual_seed(seed)
        taste = torch.randn(USERS, 4, generator=g)
        style = torch.randn(TRACKS, 4, generator=g)
        fame = torch.randn(TRACKS, generator=g) * 0.7
        self.user = torch.randint(0, USERS, (n,), generator=g)
        score = taste[self.user] @ style.T * 1.2 + fame
        self.track = torch.multinomial(score.softmax(1), 1, generator=g).squeeze(1)

    def __len__(self):
        return len(self.user)

    def __getitem__(self, i):
        return i, self.user[i], self.track[i]


class TwoTower(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.user = nn.Embedding(USERS, dim)
        self.track = nn.Embedding(TRACKS, dim)
        self.bias = nn.Embedding(TRACKS, 1)
        self.user_mlp = nn.Sequential(nn.Linear(dim, 48), nn.ReLU(), nn.Linear(48, dim))
        self.track_mlp = nn.Sequential(
            nn.Linear(dim, 48), nn.ReLU(), nn.Linear(48, dim)
        )
        nn.init.zeros_(self.bias.weight)

    def forward(self, user, track):
        u = self.user_mlp(self.user(user))
        t = self.track_mlp(self.track(track))
        return u @ t.T / 5.0 + self.bias(track).T


def in_batch_loss(scores, track):
    # other tracks of the batch serve as negatives; the same track twice is no negative
    same = track[:, None] == track[None, :]
    same.fill_diagonal_(False)
    scores = scores.masked_fill(same, -1e4)
    return F.cross_entropy(scores, torch.arange(len(track)))


@torch.no_grad()
def recall_at_50(model, data):
    model.eval()
    top = model(data.user, torch.arange(TRACKS)).topk(50, dim=1).indices
    model.train()
    return (top == data.track[:, None]).any(1).float().mean().item()


def make_loader(rank, world, args):
    data = Plays(seed=0)
    # other plays of the same people and tracks
    held_out = Plays(n=800, seed=0)
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
    return loader, sampler, held_out


def worker(rank, world, port, args, queue):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)

    loader, sampler, held_out = make_loader(rank, world, args)
    model = DDP(TwoTower())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=max(1, args.steps)
    )

    step, epoch, orders = 0, 0, []
    while step < args.steps:
        if args.fixed:
            sampler.set_epoch(epoch)
        seen, total = [], 0.0
        for index, user, track in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = in_batch_loss(model(user, track), track)
            loss.backward()
            optimizer.step()
            scheduler.step()
            seen.append(index)
            total += loss.item()
            step += 1
            if step >= args.steps:
                break
        orders.append(torch.cat(seen))
        mean_loss = torch.tensor(total / len(seen))
        dist.all_reduce(mean_loss)
        if rank == 0:
            print(
                f"epoch {epoch} step {step} loss {mean_loss.item() / world:.4f} "
                f"recall@50 {recall_at_50(model.module, held_out):.3f}",
                flush=True,
            )
        dist.barrier()
        epoch += 1

    if rank == 0:
        repeated = 0
        for a, b in zip(orders, orders[1:]):
            n = min(len(a), len(b))
            repeated += int(torch.equal(a[:n], b[:n]))
        queue.put((repeated, len(orders)))
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(worker, args=(2, free_port(), args, queue), nprocs=2, join=True)
    repeated, epochs = queue.get()
    if args.prove:
        print(
            f"{repeated} of {epochs - 1} later epochs repeat the order of the one before"
        )
        print("fault shows:", "yes" if repeated > 0 else "no")


if __name__ == "__main__":
    main()
