"""Two-tower candidate generation, in-batch softmax with logQ correction.

ID embeddings are sparse and go to SparseAdam, everything else to AdamW.
Per user the last interaction is for test, the one before for validation.
"""
import argparse
import json
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch_size", type=int, default=256)
parser.add_argument("--dim", type=int, default=32)
parser.add_argument("--temperature", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=42)


def generate_log(n_users, n_items, n_categories, rng):
    """Every user likes a few categories; popularity is long-tailed. Rows are in time order per user."""
    category = rng.integers(0, n_categories, n_items)
    popularity = 1.0 / (1 + rng.permutation(n_items)) ** 0.6
    country = rng.integers(0, 5, n_users)
    country_taste = rng.dirichlet(np.full(n_categories, 0.4), size=5)
    history = []
    for u in range(n_users):
        taste = 0.5 * country_taste[country[u]] + 0.5 * rng.dirichlet(
            np.full(n_categories, 0.15)
        )
        p = taste[category] * popularity
        p = (p + 1e-6) / (p + 1e-6).sum()
        history.append(
            rng.choice(n_items, size=rng.integers(12, 26), replace=False, p=p)
        )
    return history, country, category


class Tower(nn.Module):
    def __init__(self, n_ids, n_side, dim):
        super().__init__()
        self.ids = nn.Embedding(n_ids, dim, sparse=True)
        self.side = nn.Embedding(n_side, 8)
        self.mlp = nn.Sequential(nn.Linear(dim + 8, 64), nn.ReLU(), nn.Linear(64, dim))
        nn.init.normal_(self.ids.weight, std=0.05)

    def forward(self, ids, side):
        return F.normalize(
            self.mlp(torch.cat([self.ids(ids), self.side(side)], -1)), dim=-1
        )


class TwoTower(nn.Module):
    def __init__(self, n_users, n_countries, n_items, n_categories, dim, temperature):
        super().__init__()
        self.user = Tower(n_users, n_countries, dim)
        self.item = Tower(n_items, n_categories, dim)
        self.temperature = temperature

    def loss(self, users, countries, items, categories, log_q):
        u, v = self.user(users, countries), self.item(items, categories)
        logits = u @ v.T / self.temperature - log_q[items]
        # the same item elsewhere in the batch is not a negative
        duplicate = (items[:, None] == items[None, :]) & ~torch.eye(
            len(items), dtype=torch.bool
        )
        logits = logits.masked_fill(duplicate, float("-inf"))
        return F.cross_entropy(logits, torch.arange(len(items)))


@torch.no_grad()
def recall_at(model, k, truth, seen, country, category):
    model.eval()
    users = torch.arange(len(country))
    item_vecs = model.item(torch.arange(len(category)), category)
    hits, ndcg = 0, 0.0
    for chunk in users.split(200):
        scores = model.user(chunk, country[chunk]) @ item_vecs.T
        for row, u in enumerate(chunk.tolist()):
            scores[row, seen[u]] = -float("inf")
        top = scores.topk(k).indices
        match = top == truth[chunk][:, None]
        hits += int(match.any(1).sum())
        ranks = match.float().argmax(1)[match.any(1)]
        ndcg += float((1 / torch.log2(ranks + 2.0)).sum())
    return hits / len(users), ndcg / len(users)


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    n_users, n_items, n_categories = 700, 500, 12
    history, country, category = generate_log(n_users, n_items, n_categories, rng)
    country, category = torch.from_numpy(country), torch.from_numpy(category)

    rows = [(u, i) for u, h in enumerate(history) for i in h[:-2]]
    users, items = (torch.tensor(c) for c in zip(*rows))
    valid_truth = torch.tensor([h[-2] for h in history])
    test_truth = torch.tensor([h[-1] for h in history])
    seen_train = [torch.from_numpy(h[:-2]) for h in history]
    seen_all = [torch.from_numpy(h[:-1]) for h in history]

    counts = torch.bincount(items, minlength=n_items).float()
    log_q = torch.log(counts.clamp_min(1) / len(items))

    model = TwoTower(n_users, 5, n_items, n_categories, args.dim, args.temperature)
    sparse = [model.user.ids.weight, model.item.ids.weight]
    dense = [p for name, p in model.named_parameters() if ".ids." not in name]
    optimizers = [
        torch.optim.SparseAdam(sparse, lr=0.005),
        torch.optim.AdamW(dense, lr=0.002, weight_decay=1e-3),
    ]

    steps_per_epoch = math.floor(len(items) / args.batch_size)
    for epoch in range(args.epochs):
        model.train()
        perm = torch.randperm(len(items))
        losses = []
        # the number of negatives is the batch size, so only full batches; the rest comes round next epoch
        for b in range(steps_per_epoch):
            idx = perm[b * args.batch_size : (b + 1) * args.batch_size]
            u, i = users[idx], items[idx]
            loss = model.loss(u, country[u], i, category[i], log_q)
            for o in optimizers:
                o.zero_grad()
            loss.backward()
            for o in optimizers:
                o.step()
            losses.append(loss.item())
        recall, ndcg = recall_at(model, 20, valid_truth, seen_train, country, category)
        print(
            json.dumps(
                {
                    "epoch": epoch,
                    "loss": round(float(np.mean(losses)), 4),
                    "valid_recall@20": round(recall, 4),
                    "valid_ndcg@20": round(ndcg, 4),
                }
            )
        )
    recall, ndcg = recall_at(model, 20, test_truth, seen_all, country, category)
    print(
        json.dumps({"test_recall@20": round(recall, 4), "test_ndcg@20": round(ndcg, 4)})
    )


if __name__ == "__main__":
    main()
