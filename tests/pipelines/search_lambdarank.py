"""LambdaRank on made-up search logs, streamed from shards by two loader workers."""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

N_FEATURES = 20


def make_shard(n_queries, seed, weights):
    """Queries with 5 to 30 candidates and graded relevance 0..4."""
    rng = np.random.default_rng(seed)
    queries = []
    for _ in range(n_queries):
        n = rng.integers(5, 31)
        intent = rng.normal(size=N_FEATURES) * 0.5
        x = rng.normal(size=(n, N_FEATURES)) + intent
        score = (
            x @ weights[0]
            + np.tanh(x @ weights[1]) * 2
            + np.abs(x @ weights[2])
            + rng.normal(0, 0.6, n)
        )
        rel = np.digitize((score - score.mean()) / score.std(), [0.0, 0.7, 1.2, 1.8])
        queries.append((x.astype(np.float32), rel.astype(np.float32)))
    return queries


class QueryStream(IterableDataset):
    """Each worker reads its own shards; the order of shards and a shuffle buffer change with the epoch."""

    def __init__(self, shards, seed, buffer=64):
        self.shards, self.seed, self.buffer, self.epoch = shards, seed, buffer, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        worker, n_workers = (info.id, info.num_workers) if info else (0, 1)
        order = np.random.default_rng((self.seed, self.epoch)).permutation(
            len(self.shards)
        )
        rng = np.random.default_rng((self.seed, self.epoch, worker))
        pool = []
        for s in order[worker::n_workers]:
            for query in self.shards[s]:
                if len(pool) < self.buffer:
                    pool.append(query)
                    continue
                j = rng.integers(len(pool))
                yield pool[j]
                pool[j] = query
        for j in rng.permutation(len(pool)):
            yield pool[j]


def pad_queries(batch):
    longest = max(len(rel) for _, rel in batch)
    x = torch.zeros(len(batch), longest, N_FEATURES)
    rel = torch.zeros(len(batch), longest)
    mask = torch.zeros(len(batch), longest, dtype=torch.bool)
    for i, (xi, ri) in enumerate(batch):
        x[i, : len(ri)] = torch.from_numpy(xi)
        rel[i, : len(ri)] = torch.from_numpy(ri)
        mask[i, : len(ri)] = True
    return x, rel, mask


class Scorer(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(N_FEATURES, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, x, mask):
        return self.net(x).squeeze(-1).masked_fill(~mask, -1e4)


def gains(rel):
    return 2.0**rel - 1


def ideal_dcg(rel, mask, k=None):
    g = (gains(rel) * mask).sort(dim=1, descending=True).values[:, :k]
    return (g / torch.log2(torch.arange(2, g.size(1) + 2, dtype=g.dtype))).sum(1)


def lambda_loss(scores, rel, mask):
    with torch.no_grad():
        rank = scores.argsort(dim=1, descending=True).argsort(dim=1) + 1
        discount = 1 / torch.log2(rank + 1.0)
        delta = (gains(rel)[:, :, None] - gains(rel)[:, None, :]).abs() * (
            discount[:, :, None] - discount[:, None, :]
        ).abs()
        delta = delta / ideal_dcg(rel, mask).clamp_min(1e-6)[:, None, None]
        pairs = (
            (rel[:, :, None] > rel[:, None, :]) & mask[:, :, None] & mask[:, None, :]
        )
        weight = delta * pairs
    diff = scores[:, :, None] - scores[:, None, :]
    return (weight * F.softplus(-diff)).sum(dim=(1, 2)).mean()


@torch.no_grad()
def ndcg(model, loader, k=10):
    model.eval()
    total, n = 0.0, 0
    for x, rel, mask in loader:
        order = model(x, mask).argsort(dim=1, descending=True)
        g = (gains(rel) * mask).gather(1, order)[:, :k]
        dcg = (g / torch.log2(torch.arange(2, g.size(1) + 2, dtype=g.dtype))).sum(1)
        ideal = ideal_dcg(rel, mask, k)
        valid = ideal > 0
        total += (dcg[valid] / ideal[valid]).sum().item()
        n += int(valid.sum())
    return total / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--seed", type=int, default=77)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    weights = np.random.default_rng(args.seed).normal(0, 0.5, size=(3, N_FEATURES))
    stream = QueryStream(
        [make_shard(60, 1000 + s, weights) for s in range(16)], args.seed
    )
    held_out = make_shard(240, 5000, weights)
    train_loader = DataLoader(
        stream, batch_size=24, collate_fn=pad_queries, num_workers=args.workers
    )
    valid_loader = DataLoader(held_out, batch_size=60, collate_fn=pad_queries)

    model = Scorer()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    print(f"untrained ndcg@10 {ndcg(model, valid_loader):.4f}")
    warmup, step = 20, 0
    for epoch in range(args.epochs):
        stream.set_epoch(epoch)
        model.train()
        total = queries = 0
        for x, rel, mask in train_loader:
            for group in optimizer.param_groups:
                group["lr"] = 3e-3 * min(
                    (step + 1) / warmup, math.sqrt(warmup / (step + 1))
                )
            loss = lambda_loss(model(x, mask), rel, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
            queries += len(x)
            step += 1
        print(
            f"epoch {epoch}  queries {queries}  loss {total / queries:.4f}  ndcg@10 {ndcg(model, valid_loader):.4f}"
        )


if __name__ == "__main__":
    main()
