"""Click-through-rate model (embeddings + MLP), data parallel over two CPU workers."""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

WORLD = 2
CARDS = (50, 30, 20, 12)


def impressions(n, seed):
    g = torch.Generator().manual_seed(seed)
    truth = torch.Generator().manual_seed(555)
    effects = [0.9 * torch.randn(c, generator=truth) for c in CARDS]
    cross = 1.2 * torch.randn(CARDS[2], CARDS[3], generator=truth)
    cats = torch.stack([torch.randint(0, c, (n,), generator=g) for c in CARDS], 1)
    dense = torch.randn(n, 4, generator=g)
    logit = sum(e[cats[:, k]] for k, e in enumerate(effects))
    logit = logit + cross[cats[:, 2], cats[:, 3]] + 0.8 * dense[:, 0] - 1.0
    clicks = (torch.rand(n, generator=g) < torch.sigmoid(logit)).float()
    return cats, dense, clicks


class ClickModel(nn.Module):
    def __init__(self, dim=8, hidden=48):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, dim) for c in CARDS)
        self.mlp = nn.Sequential(
            nn.Linear(dim * len(CARDS) + 4, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, cats, dense):
        e = [t(cats[:, k]) for k, t in enumerate(self.tables)]
        return self.mlp(torch.cat(e + [dense], 1)).squeeze(1)


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= WORLD


def worker(rank, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)

    torch.manual_seed(args.seed + rank)
    cats, dense, clicks = impressions(6000, seed=1)
    val = impressions(2000, seed=2)
    shard = slice(rank, None, WORLD)
    cats, dense, clicks = cats[shard], dense[shard], clicks[shard]

    model = ClickModel()
    if args.fixed:
        for p in model.parameters():
            dist.broadcast(p.data, src=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    gen = torch.Generator().manual_seed(1000 + rank)

    running = 0.0
    for step in range(args.steps):
        idx = torch.randint(0, len(clicks), (args.batch,), generator=gen)
        loss = F.binary_cross_entropy_with_logits(
            model(cats[idx], dense[idx]), clicks[idx]
        )
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()

        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss)
        running += mean_loss.item() / WORLD
        if (step + 1) % 40 == 0 and rank == 0:
            print(f"step {step + 1:4d} loss {running / 40:.4f}", flush=True)
        if (step + 1) % 40 == 0:
            running = 0.0

    if rank == 0:
        model.eval()
        with torch.no_grad():
            logits = model(val[0], val[1])
            ll = F.binary_cross_entropy_with_logits(logits, val[2]).item()
            acc = ((logits > 0) == (val[2] > 0.5)).float().mean().item()
        print(
            f"val log loss {ll:.4f} accuracy {acc:.4f} base rate {val[2].mean():.3f}",
            flush=True,
        )

    if args.prove:
        flat = torch.cat([p.detach().flatten() for p in model.parameters()])
        both = [torch.empty_like(flat) for _ in range(WORLD)]
        dist.all_gather(both, flat)
        if rank == 0:
            gap = (both[0] - both[1]).abs().max().item()
            print(f"largest difference of a weight between the workers: {gap:.6f}")
            print("fault shows:", "yes" if gap > 1e-4 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=100)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    mp.spawn(worker, args=(free_port(), args), nprocs=WORLD, join=True)
