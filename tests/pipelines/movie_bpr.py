"""Implicit feedback recommender: matrix factorisation + small item tower, BPR loss.

Sparse embeddings go to SparseAdam, the dense tower to Adam. Leave-last-two-out evaluation
(last-but-one interaction of each user = validation, last = test).
"""
import argparse
import logging
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(
    stream=sys.stdout,
    level=logging.INFO,
    format="%(asctime)s %(message)s",
    datefmt="%H:%M:%S",
)
logger = logging.getLogger(__name__)


def simulate(n_users, n_items, per_user, seed):
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(n_users, 6))
    genre = rng.normal(size=(n_items, 6))
    popularity = rng.gumbel(0, 0.8, n_items)
    score = taste @ genre.T * 1.3 + popularity
    # Gumbel top-k = sampling without replacement from the softmax; the order is the time order
    noisy = score + rng.gumbel(size=score.shape)
    top = np.argpartition(-noisy, per_user, axis=1)[:, :per_user]
    histories = rng.permuted(top, axis=1)
    features = np.concatenate(
        [
            genre[:, :3] + rng.normal(0, 0.5, (n_items, 3)),
            rng.normal(size=(n_items, 2)),
        ],
        1,
    )
    return histories, features.astype(np.float32)


class Recommender(nn.Module):
    def __init__(self, n_users, n_items, item_features, dim=24):
        super().__init__()
        self.user = nn.Embedding(n_users, dim, sparse=True)
        self.item = nn.Embedding(n_items, dim, sparse=True)
        self.item_bias = nn.Embedding(n_items, 1, sparse=True)
        self.register_buffer("features", item_features)
        self.tower = nn.Sequential(
            nn.Linear(item_features.size(1), 32), nn.ReLU(), nn.Linear(32, dim)
        )
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.item_bias.weight)

    def item_vectors(self, i):
        return self.item(i) + self.tower(self.features[i])

    def forward(self, u, i):
        return (self.user(u) * self.item_vectors(i)).sum(-1) + self.item_bias(
            i
        ).squeeze(-1)

    @torch.no_grad()
    def score_all(self, u):
        items = torch.arange(self.features.size(0))
        return self.user(u) @ self.item_vectors(
            items
        ).t() + self.item_bias.weight.squeeze(1)


class BPRSampler:
    """epochs over all positive pairs, negatives are uniform over the items the user has not seen in train"""

    def __init__(self, train_items, n_items, batch_size, seed):
        self.users = np.repeat(np.arange(len(train_items)), train_items.shape[1])
        self.pos = train_items.reshape(-1)
        self.seen = np.zeros((len(train_items), n_items), dtype=bool)
        self.seen[self.users, self.pos] = True
        self.n_items, self.batch_size = n_items, batch_size
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return -(-len(self.users) // self.batch_size)

    def __iter__(self):
        order = self.rng.permutation(len(self.users))
        for start in range(0, len(order), self.batch_size):
            idx = order[start : start + self.batch_size]
            u = self.users[idx]
            neg = self.rng.integers(0, self.n_items, len(u))
            clash = self.seen[u, neg]
            while clash.any():
                neg[clash] = self.rng.integers(0, self.n_items, clash.sum())
                clash = self.seen[u, neg]
            yield torch.from_numpy(u), torch.from_numpy(
                self.pos[idx]
            ), torch.from_numpy(neg)


def ranking_metrics(model, target, hidden, k=10):
    """target: one held-out item per user. hidden: bool mask of items that may not be recommended"""
    model.eval()
    users = torch.arange(len(target))
    scores = model.score_all(users).masked_fill(hidden, float("-inf"))
    rank = (scores > scores.gather(1, target[:, None])).sum(1)
    hit = (rank < k).float()
    ndcg = hit / torch.log2(rank.float() + 2)
    return hit.mean().item(), ndcg.mean().item()


def popularity_baseline(cfg, train_items, seen_train, val_items):
    pop = torch.bincount(
        torch.from_numpy(train_items.reshape(-1)), minlength=cfg.items
    ).float()
    pop_scores = pop.expand(cfg.users, -1).masked_fill(seen_train, -1)
    hits = (pop_scores.topk(10, dim=1).indices == val_items[:, None]).any(1)
    return hits.float().mean().item()


def run(cfg):
    torch.manual_seed(cfg.seed)
    hist, feats = simulate(cfg.users, cfg.items, per_user=24, seed=cfg.seed)
    train_items, val_items, test_items = (
        hist[:, :-2],
        torch.from_numpy(hist[:, -2]),
        torch.from_numpy(hist[:, -1]),
    )
    sampler = BPRSampler(train_items, cfg.items, cfg.batch_size, cfg.seed + 1)
    seen_train = torch.from_numpy(sampler.seen)
    seen_val = seen_train.clone()
    seen_val[torch.arange(cfg.users), val_items] = True

    model = Recommender(cfg.users, cfg.items, torch.from_numpy(feats))
    sparse = [model.user.weight, model.item.weight, model.item_bias.weight]
    dense = list(model.tower.parameters())
    assert len(sparse) + len(dense) == len(list(model.parameters()))
    optimizers = [
        torch.optim.SparseAdam(sparse, lr=cfg.lr),
        torch.optim.Adam(dense, lr=cfg.lr / 2, weight_decay=1e-5),
    ]

    base = popularity_baseline(cfg, train_items, seen_train, val_items)
    logger.info("%d interactions, baseline HR@10 %.3f", train_items.size, base)

    best, wait, best_state = -1.0, 0, None
    for epoch in range(1, cfg.epochs + 1):
        model.train()
        loss_sum = seen = 0
        for u, pos, neg in sampler:
            diff = model(u, pos) - model(u, neg)
            reg = (
                model.user(u).pow(2).sum(1)
                + model.item(pos).pow(2).sum(1)
                + model.item(neg).pow(2).sum(1)
            )
            bpr = -F.logsigmoid(diff).mean()
            loss = bpr + cfg.reg * reg.mean()
            for opt in optimizers:
                opt.zero_grad()
            loss.backward()
            for opt in optimizers:
                opt.step()
            loss_sum += bpr.item() * len(u)
            seen += len(u)
        hr, ndcg = ranking_metrics(model, val_items, seen_train)
        shown = epoch, loss_sum / seen, hr, ndcg
        logger.info("epoch %d bpr %.4f | val HR@10 %.3f NDCG@10 %.4f", *shown)
        if ndcg > best:
            best, wait = ndcg, 0
            best_state = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            wait += 1
            if wait >= cfg.patience:
                logger.info("early stop")
                break
    model.load_state_dict(best_state)
    hr, ndcg = ranking_metrics(model, test_items, seen_val)
    logger.info("test HR@10 %.3f NDCG@10 %.4f", hr, ndcg)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--users", type=int, default=600)
    ap.add_argument("--items", type=int, default=300)
    ap.add_argument("--batch_size", type=int, default=512)
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument("--reg", type=float, default=2e-3)
    ap.add_argument("--patience", type=int, default=3)
    ap.add_argument("--seed", type=int, default=4)
    run(ap.parse_args())
