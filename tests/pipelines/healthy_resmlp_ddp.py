"""A residual MLP with LayerNorm on tabular data, data-parallel.

Starts its own ranks unless a launcher has set RANK.
"""

import argparse
import hashlib
import os
import socket

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ranks import gather_digests, leave_group


class Block(nn.Module):
    def __init__(self, dim, expansion):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, expansion * dim)
        self.down = nn.Linear(expansion * dim, dim)
        self.act = nn.GELU()

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class ResidualMLP(nn.Module):
    def __init__(self, features, dim, blocks, classes):
        super().__init__()
        self.embed = nn.Linear(features, dim)
        self.blocks = nn.ModuleList([Block(dim, 2) for _ in range(blocks)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_table(rows, features, classes, seed):
    teacher = torch.randn(features, classes, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=g)
    y = (x @ teacher + 0.3 * torch.randn(rows, classes, generator=g)).argmax(1)
    return TensorDataset(x, y)


@torch.no_grad()
def validate(model, loader, loss_fn):
    model.eval()
    losses = [loss_fn(model(x), y).item() for x, y in loader]
    model.train()
    return sum(losses) / len(losses)


def train(args):
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    inner = ResidualMLP(args.features, args.dim, args.blocks, args.classes)
    model = nn.parallel.DistributedDataParallel(inner, gradient_as_bucket_view=True)
    decay = [p for p in model.parameters() if p.dim() > 1]
    no_decay = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": 0.05},
            {"params": no_decay, "weight_decay": 0.0},
        ],
        lr=args.lr,
        betas=(0.9, 0.95),
    )
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, total_iters=5)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)

    rows = 10 * args.batch_size * dist.get_world_size() + 5
    table = make_table(rows, args.features, args.classes, args.seed + 1)
    sampler = DistributedSampler(table, seed=args.seed)
    loader = DataLoader(
        table,
        args.batch_size,
        sampler=sampler,
        num_workers=1,
        persistent_workers=True,
    )
    held_out = make_table(64, args.features, args.classes, args.seed + 2)
    validation = DataLoader(held_out, batch_size=64)

    done, epoch = 0, 0
    while done < args.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            warmup.step()
            if rank == 0:
                print(f"step={done} loss={loss.item().hex()}", flush=True)
            done += 1
            if done == args.steps:
                break
        value = validate(model, validation, loss_fn)
        if rank == 0:
            print(f"epoch={epoch} validation={value:.4f}", flush=True)
        epoch += 1
    return inner


def report(model):
    sha = hashlib.sha256()
    for p in model.parameters():
        sha.update(p.detach().numpy().tobytes())
    all_digests = gather_digests(sha.hexdigest())
    if dist.get_rank() == 0:
        for rank, value in enumerate(all_digests):
            print(f"digest rank={rank} {value}", flush=True)
    dist.barrier()


def entry(local_rank, args):
    os.environ.setdefault("RANK", str(local_rank))
    os.environ.setdefault("WORLD_SIZE", str(args.nproc))
    os.environ.setdefault("LOCAL_RANK", str(local_rank))
    torch.set_num_threads(1)
    dist.init_process_group(backend="gloo")
    model = train(args)
    if args.print_digest:
        report(model)
    leave_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--print-digest", action="store_true")
    args = parser.parse_args()
    if "RANK" in os.environ:
        entry(int(os.environ.get("LOCAL_RANK", 0)), args)
    else:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = str(sock.getsockname()[1])
        sock.close()
        torch.multiprocessing.spawn(entry, (args,), nprocs=args.nproc)
