"""Sentiment of short reviews with a GRU, data parallel on two gloo ranks."""
import argparse
import os
import random
import socket
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

PAD = 0
VOCAB = 120


class Reviews(Dataset):
    """Token ids 1..20 lean positive, 21..40 lean negative, 41 negates the next word."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.items = []
        while len(self.items) < n:
            length = rng.randint(6, 24)
            tokens, score = [], 0
            for _ in range(length):
                r = rng.random()
                if r < 0.2:
                    tokens.append(rng.randint(1, 20))
                    s = 1
                elif r < 0.4:
                    tokens.append(rng.randint(21, 40))
                    s = -1
                else:
                    tokens.append(rng.randint(42, VOCAB - 1))
                    s = 0
                if s and rng.random() < 0.15:
                    tokens.insert(-1, 41)
                    s = -s
                score += s
            if score != 0:
                self.items.append((torch.tensor(tokens), float(score > 0)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    lengths = torch.tensor([len(t) for t, _ in batch])
    tokens = pad_sequence([t for t, _ in batch], batch_first=True, padding_value=PAD)
    return tokens, lengths, torch.tensor([y for _, y in batch])


class SentimentGRU(nn.Module):
    def __init__(self, dim=32, hidden=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(2 * hidden, 1)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(
            self.drop(self.emb(tokens)), lengths, batch_first=True, enforce_sorted=False
        )
        _, h = self.rnn(packed)
        return self.out(self.drop(torch.cat([h[0], h[1]], dim=1))).squeeze(1)


def evaluate(model, loader):
    """Every rank scores its own disjoint part, sums are reduced over the ranks."""
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    with torch.no_grad():
        for tokens, lengths, y in loader:
            logits = model(tokens, lengths)
            sums[0] += F.binary_cross_entropy_with_logits(logits, y, reduction="sum")
            sums[1] += ((logits > 0).float() == y).sum()
            sums[2] += len(y)
    dist.all_reduce(sums)
    model.train()
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def groups_of(loader, size):
    """Yield lists of `size` micro batches; the last list may be shorter."""
    bucket = []
    for batch in loader:
        bucket.append(batch)
        if len(bucket) == size:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def make_loaders(rank, world, args):
    train_set, val_set = Reviews(1024, seed=1), Reviews(301, seed=2)
    sampler = DistributedSampler(
        train_set, num_replicas=world, rank=rank, shuffle=True, seed=args.seed
    )
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size, sampler=sampler, collate_fn=collate
    )
    val_loader = DataLoader(
        Subset(val_set, range(rank, len(val_set), world)),
        batch_size=64,
        collate_fn=collate,
    )
    return train_loader, val_loader


def train_epoch(model, groups, optimizer, scheduler):
    """Returns the mean loss over all ranks."""
    model.train()
    epoch_sum = torch.zeros(2, dtype=torch.float64)
    for group in groups:
        optimizer.zero_grad()
        n_group = sum(len(y) for _, _, y in group)
        for i, (tokens, lengths, y) in enumerate(group):
            last = i == len(group) - 1
            with nullcontext() if last else model.no_sync():
                logits = model(tokens, lengths)
                loss_sum = F.binary_cross_entropy_with_logits(
                    logits, y, reduction="sum"
                )
                (loss_sum / n_group).backward()
            epoch_sum[0] += loss_sum.detach()
            epoch_sum[1] += len(y)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    dist.all_reduce(epoch_sum)
    return (epoch_sum[0] / epoch_sum[1]).item()


def worker(rank, world, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)  # same weights everywhere

    train_loader, val_loader = make_loaders(rank, world, args)
    model = DDP(SentimentGRU())
    torch.manual_seed(args.seed + 1000 * (rank + 1))  # different dropout masks per rank
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    steps_per_epoch = -(-len(train_loader) // args.accum)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=args.lr,
        total_steps=args.epochs * steps_per_epoch,
        pct_start=0.2,
    )

    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        train_loss = train_epoch(
            model, groups_of(train_loader, args.accum), optimizer, scheduler
        )
        val_loss, val_acc = evaluate(model.module, val_loader)
        if rank == 0:
            print(
                f"epoch {epoch} step {(epoch + 1) * steps_per_epoch} train {train_loss:.4f} "
                f"val {val_loss:.4f} acc {val_acc:.3f} lr {scheduler.get_last_lr()[0]:.2e}",
                flush=True,
            )

    # weights must agree over the ranks at the end
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    ref = flat.clone()
    dist.broadcast(ref, src=0)
    assert torch.allclose(flat, ref), f"rank {rank} differs"
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accum", type=int, default=2)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--seed", type=int, default=11)
    cli = parser.parse_args()
    mp.spawn(worker, args=(2, free_port(), cli), nprocs=2)
