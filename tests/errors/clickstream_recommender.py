"""Next-item recommender on a stream of click sessions.

Sessions lie in shard files (JSON lines, written to a temporary folder here) and
are read with an IterableDataset by two loader workers.
"""
import argparse
import collections
import json
import os
import shutil
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

N_ITEMS = 120
MAX_LEN = 8


def write_shards(folder, n_shards, per_shard, seed):
    """Users hop between items of one category, sometimes to a related category."""
    rng = np.random.default_rng(seed)
    session_id = 0
    paths = []
    for s in range(n_shards):
        path = os.path.join(folder, f"clicks-{seed}-{s:03d}.jsonl")
        with open(path, "w") as f:
            for _ in range(per_shard):
                cat = rng.integers(0, 12)
                items = []
                for _ in range(rng.integers(4, MAX_LEN + 2)):
                    if rng.random() < 0.15:
                        cat = (cat + 3) % 12
                    items.append(int(cat * 10 + min(9, rng.geometric(0.3) - 1)))
                f.write(json.dumps({"id": session_id, "items": items}) + "\n")
                session_id += 1
        paths.append(path)
    return paths


class ClickStream(IterableDataset):
    def __init__(self, paths, split_by_worker=False, buffer_size=64, seed=0):
        self.paths = paths
        self.split_by_worker = split_by_worker
        self.buffer_size = buffer_size
        self.seed = seed
        self.epoch = 0

    def read(self, paths):
        for path in paths:
            with open(path) as f:
                for line in f:
                    yield json.loads(line)

    def __iter__(self):
        paths = self.paths
        if self.split_by_worker:
            info = get_worker_info()
            if info is not None:
                paths = paths[info.id :: info.num_workers]
        rng = np.random.default_rng((self.seed, self.epoch))
        buffer = []
        for record in self.read(paths):
            if len(buffer) < self.buffer_size:
                buffer.append(record)
                continue
            k = int(rng.integers(self.buffer_size))
            buffer[k], record = record, buffer[k]
            yield self.encode(record)
        rng.shuffle(buffer)
        for record in buffer:
            yield self.encode(record)

    @staticmethod
    def encode(record):
        history, target = record["items"][:-1][-MAX_LEN:], record["items"][-1]
        padded = [0] * (MAX_LEN - len(history)) + [i + 1 for i in history]
        return record["id"], torch.tensor(padded), target


class SessionGRU(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.items = nn.Embedding(N_ITEMS + 1, dim, padding_idx=0)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.bias = nn.Parameter(torch.zeros(N_ITEMS))

    def forward(self, history):
        _, h = self.gru(self.drop(self.items(history)))
        return h[-1] @ self.items.weight[1:].t() + self.bias


def recall_at_k(model, loader, k=5):
    model.eval()
    hit = n = 0
    with torch.no_grad():
        for _, history, target in loader:
            top = model(history).topk(k, dim=1).indices
            hit += (top == target[:, None]).any(1).sum().item()
            n += len(target)
    model.train()
    return hit / n


def fit(args, folder):
    train_paths = write_shards(folder, 4, 400, seed=1)
    test_paths = write_shards(folder, 1, 400, seed=2)

    stream = ClickStream(train_paths)
    if args.fixed:
        stream = ClickStream(train_paths, split_by_worker=True)
    train_loader = DataLoader(
        stream, batch_size=args.batch, num_workers=2, drop_last=True
    )
    test_loader = DataLoader(ClickStream(test_paths), batch_size=200)

    model = SessionGRU()
    nn.init.normal_(model.items.weight, std=0.1)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)

    first_epoch_ids = collections.Counter()
    step = epoch = 0
    while step < args.steps:
        stream.epoch = epoch
        losses = []
        for ids, history, target in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(history), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
            if epoch == 0:
                first_epoch_ids.update(ids.tolist())
            if step >= args.steps:
                break
        epoch += 1
        print(
            "epoch %d: %d steps so far, loss %.4f, recall@5 %.3f"
            % (epoch, step, float(np.mean(losses)), recall_at_k(model, test_loader))
        )
    return first_epoch_ids


def main():
    parser = argparse.ArgumentParser(description="session based recommendation")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.08)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(606)
    folder = tempfile.mkdtemp(prefix="clicks_")
    try:
        ids = fit(args, folder)
    finally:
        shutil.rmtree(folder)

    if args.prove:
        print("fault shows:", "yes" if max(ids.values()) > 1 else "no")


if __name__ == "__main__":
    main()
