"""Two ranks train a bi-encoder of texts with negatives that they share.

After huggingface/sentence-transformers, pull request 3453.
"""

import argparse
import os
import socket
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass
class Config:
    concepts: int = 64
    doc_len: int = 6
    n_train: int = 1792
    n_val: int = 256
    dim: int = 48
    batch_size: int = 32
    epochs: int = 4
    lr: float = 1e-2
    warmup: int = 8
    scale: float = 20.0
    seed: int = 42


class TripletTexts(Dataset):
    """(query, answer, hard negative); answers use the second half of the vocabulary."""

    def __init__(self, n, cfg, seed):
        rng = np.random.default_rng(seed)
        V, L = cfg.concepts, cfg.doc_len
        q = np.stack([rng.choice(V, L, replace=False) for _ in range(n)])
        pos = q + V
        pos[np.arange(n), rng.integers(0, L, n)] = rng.integers(0, V, n) + V
        neg = q + V
        for i in range(n):
            swap = rng.choice(L, L // 2, replace=False)
            neg[i, swap] = rng.integers(0, V, L // 2) + V
        perm = np.argsort(rng.random((n, L)), axis=1)
        pos, neg = np.take_along_axis(pos, perm, 1), np.take_along_axis(neg, perm, 1)
        self.cols = [torch.from_numpy(a).long() for a in (q, pos, neg)]

    def __len__(self):
        return len(self.cols[0])

    def __getitem__(self, i):
        return tuple(c[i] for c in self.cols)


class SentenceEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(2 * cfg.concepts, cfg.dim)
        self.drop = nn.Dropout(0.1)
        self.proj = nn.Sequential(
            nn.Linear(cfg.dim, cfg.dim), nn.Tanh(), nn.Linear(cfg.dim, cfg.dim)
        )

    def forward(self, columns):
        n = len(columns)
        x = self.drop(self.emb(torch.cat(columns))).mean(1)
        return self.proj(x).chunk(n)


class GatherWithGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[0]
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        return torch.cat(out)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        start = dist.get_rank() * ctx.n
        return grad[start : start + ctx.n]


def gather_joint(columns):
    return GatherWithGrad.apply(torch.cat(columns))


def gather_columns(columns):
    return torch.cat([GatherWithGrad.apply(c) for c in columns])


class MultipleNegativesRankingLoss(nn.Module):
    def __init__(self, cfg, gather):
        super().__init__()
        self.scale = cfg.scale
        self.gather = gather

    def labels(self, n):
        offset = dist.get_rank() * n
        return torch.arange(offset, offset + n)

    def forward(self, embeddings):
        anchors, *candidates = embeddings
        docs = self.gather(candidates)
        labels = self.labels(anchors.shape[0])
        scores = self.scale * F.normalize(anchors, dim=-1) @ F.normalize(docs, dim=-1).T
        return F.cross_entropy(scores, labels)


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    q, p, n = model(list(data.cols))
    scores = F.normalize(q, dim=-1) @ F.normalize(torch.cat([p, n]), dim=-1).T
    rank = (scores > scores.diagonal()[:, None]).sum(1) + 1
    model.train()
    return (1.0 / rank).mean().item()


def wrong_labels(criterion, n):
    """How many labels of both ranks point at another text than the own answer."""
    marks = torch.arange(1.0, n + 1) + n * dist.get_rank()
    docs = criterion.gather([marks, -marks])
    wrong = (docs[criterion.labels(n)] != marks).sum()
    dist.all_reduce(wrong)
    return wrong.item()


def worker(rank, world, port, cfg, gather, prove, out_path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(cfg.seed + rank)
    train_set, val_set = TripletTexts(cfg.n_train, cfg, 1), TripletTexts(
        cfg.n_val, cfg, 2
    )
    sampler = DistributedSampler(
        train_set, world, rank, shuffle=True, seed=cfg.seed, drop_last=True
    )
    loader = DataLoader(train_set, cfg.batch_size, sampler=sampler, drop_last=True)
    model = DDP(SentenceEncoder(cfg))
    criterion = MultipleNegativesRankingLoss(cfg, gather)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    total = cfg.epochs * len(loader)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min(
            (s + 1) / cfg.warmup, max(0.05, (total - s) / (total - cfg.warmup))
        ),
    )
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for batch in loader:
            opt.zero_grad()
            loss = criterion(model(list(batch)))
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item()
        if rank == 0:
            mrr = evaluate(model.module, val_set)
            loss = running / len(loader)
            print(f"epoch {epoch} loss {loss:.4f} val_mrr {mrr:.4f}", flush=True)
        dist.barrier()
    wrong = wrong_labels(criterion, cfg.batch_size) if prove else 0
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "wrong": wrong}, out_path)
    dist.barrier()
    dist.destroy_process_group()


def train(cfg, gather, prove):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "model.pt")
        mp.spawn(worker, args=(2, port, cfg, gather, prove, path), nprocs=2)
        return torch.load(path)["wrong"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    cfg = Config(seed=args.seed, epochs=args.epochs, lr=args.lr)
    gather = gather_columns if args.fixed else gather_joint
    wrong = train(cfg, gather, args.prove)
    if args.prove:
        print(
            f"{wrong} of {2 * cfg.batch_size} labels are not those of the own answers"
        )
        print("fault shows:", "yes" if wrong else "no", flush=True)


if __name__ == "__main__":
    main()
