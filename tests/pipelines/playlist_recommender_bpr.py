"""Next-song recommender: matrix factorisation with BPR loss and sparse embeddings.

- leave-one-out split by time: last song of each user is test, the one before validation
- popularity-based negative sampling (count ** 0.75), known positives are drawn again
- SparseAdam for the embedding tables, plain AdamW for the song feature tower
"""
import argparse
import logging
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("bpr")


def simulate(n_users, n_items, rng, per_user=(12, 25), n_genres=8):
    genre = rng.integers(0, n_genres, n_items)
    tempo = rng.normal(size=n_items)
    taste = rng.dirichlet(np.full(n_genres, 0.25), n_users)
    fast = rng.normal(size=n_users)
    pop = rng.gamma(1.2, 1.0, n_items) + 0.05
    histories = []
    for u in range(n_users):
        p = pop * taste[u, genre] * np.exp(0.5 * fast[u] * tempo)
        p = p + 1e-9
        k = rng.integers(*per_user)
        histories.append(rng.choice(n_items, size=k, replace=False, p=p / p.sum()))
    feats = np.concatenate([np.eye(n_genres)[genre], tempo[:, None]], axis=1)
    # genre tags are noisy in our catalogue
    feats[:, :n_genres] += rng.normal(0, 0.3, (n_items, n_genres))
    return histories, feats.astype(np.float32)


class Interactions(Dataset):
    def __init__(self, histories):
        self.pairs = np.array(
            [(u, i) for u, h in enumerate(histories) for i in h], dtype=np.int64
        )

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        u, i = self.pairs[k]
        return int(u), int(i)


class NegativeSampler:
    def __init__(self, histories, n_items, k, generator):
        counts = np.bincount(np.concatenate(histories), minlength=n_items) + 1
        self.weights = torch.tensor(counts, dtype=torch.float) ** 0.75
        self.seen = torch.zeros(len(histories), n_items, dtype=torch.bool)
        for u, h in enumerate(histories):
            self.seen[u, h] = True
        self.k, self.generator = k, generator

    def __call__(self, users):
        shape = (len(users), self.k)
        neg = torch.multinomial(
            self.weights, shape[0] * shape[1], True, generator=self.generator
        ).view(shape)
        for _ in range(10):
            clash = self.seen[users[:, None], neg]
            if not clash.any():
                break
            neg[clash] = torch.multinomial(
                self.weights, int(clash.sum()), True, generator=self.generator
            )
        return neg


class HybridMF(nn.Module):
    def __init__(self, n_users, n_items, n_feats, dim):
        super().__init__()
        self.user = nn.Embedding(n_users, dim, sparse=True)
        self.item = nn.Embedding(n_items, dim, sparse=True)
        self.bias = nn.Embedding(n_items, 1, sparse=True)
        self.tower = nn.Sequential(
            nn.Linear(n_feats, 32), nn.ReLU(), nn.Linear(32, dim)
        )
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def sparse_parameters(self):
        return [self.user.weight, self.item.weight, self.bias.weight]

    def item_vectors(self, items, feats):
        return self.item(items) + self.tower(feats[items])

    def forward(self, users, items, feats):
        """users [B], items [B, K] -> scores [B, K]"""
        v = self.item_vectors(items, feats)
        return (self.user(users)[:, None] * v).sum(-1) + self.bias(items).squeeze(-1)

    def score_all(self, users, feats):
        every = torch.arange(self.item.num_embeddings)
        return (
            self.user(users) @ self.item_vectors(every, feats).t()
            + self.bias.weight.t()
        )


def rank_metrics(model, feats, target, known, ks=(10,)):
    """target: one song per user, songs in `known` are masked out"""
    model.eval()
    ranks = []
    with torch.no_grad():
        for users in torch.arange(len(target)).split(200):
            s = model.score_all(users, feats)
            goal = s.gather(1, target[users, None])
            s = s.masked_fill(known[users], float("-inf"))
            ranks.append((s > goal).sum(1))
    ranks = torch.cat(ranks)
    out = {f"hit@{k}": (ranks < k).float().mean().item() for k in ks}
    out["mrr"] = (1.0 / (ranks + 1)).mean().item()
    return out


def parse_args():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=256)
    ap.add_argument("--negatives", type=int, default=4)
    ap.add_argument("--dim", type=int, default=24)
    ap.add_argument("--seed", type=int, default=77)
    return ap.parse_args()


def train_epoch(model, loader, sampler, feats, optimizers):
    model.train()
    loss_sum = 0.0
    for users, pos in loader:
        items = torch.cat([pos[:, None], sampler(users)], dim=1)
        scores = model(users, items, feats)
        loss = -F.logsigmoid(scores[:, :1] - scores[:, 1:]).mean()
        # l2 on the vectors that take part in this batch
        reg = (model.user(users).pow(2).sum() + model.item(pos).pow(2).sum()) / len(
            users
        )
        for o in optimizers:
            o.zero_grad()
        (loss + 2e-3 * reg).backward()
        for o in optimizers:
            o.step()
        loss_sum += loss.item() * len(users)
    return loss_sum


def main():
    args = parse_args()
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(name)s | %(message)s"
    )
    torch.manual_seed(args.seed)

    n_users, n_items = 600, 400
    histories, feats = simulate(n_users, n_items, np.random.default_rng(args.seed))
    train = [h[:-2] for h in histories]
    valid = torch.tensor([int(h[-2]) for h in histories])
    test = torch.tensor([int(h[-1]) for h in histories])
    feats = torch.from_numpy(feats)

    sampler = NegativeSampler(
        train, n_items, args.negatives, torch.Generator().manual_seed(args.seed)
    )
    loader = DataLoader(Interactions(train), batch_size=args.batch_size, shuffle=True)
    logger.info(
        "%d users, %d songs, %d plays, %d batches",
        n_users,
        n_items,
        len(loader.dataset),
        len(loader),
    )

    model = HybridMF(n_users, n_items, feats.size(1), args.dim)
    optimizers = [
        torch.optim.SparseAdam(model.sparse_parameters(), lr=0.01),
        torch.optim.AdamW(model.tower.parameters(), lr=3e-3, weight_decay=1e-2),
    ]

    best, best_state = -1.0, None
    for epoch in range(1, args.epochs + 1):
        loss_sum = train_epoch(model, loader, sampler, feats, optimizers)
        m = rank_metrics(model, feats, valid, sampler.seen)
        logger.info(
            "epoch %2d bpr %.4f hit@10 %.3f mrr %.3f",
            epoch,
            loss_sum / len(loader.dataset),
            m["hit@10"],
            m["mrr"],
        )
        if m["mrr"] > best:
            best = m["mrr"]
            best_state = {k: v.clone() for k, v in model.state_dict().items()}

    model.load_state_dict(best_state)
    known = sampler.seen.clone()
    known[
        torch.arange(n_users), valid
    ] = True  # the validation song has been heard by then
    logger.info(
        "test %s",
        {
            k: round(v, 3)
            for k, v in rank_metrics(model, feats, test, known, (5, 10, 20)).items()
        },
    )


if __name__ == "__main__":
    main()
