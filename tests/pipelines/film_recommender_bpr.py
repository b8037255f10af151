"""
Film recommendations from implicit feedback (matrix factorisation + item features, BPR loss).

Split: leave-one-out, the last film of every user is the test film, the one before it the
validation film. Metrics: HR@10 and NDCG@10 over the whole catalogue without films seen earlier.
"""
import argparse
import logging
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(
    stream=sys.stdout, level=logging.INFO, format="%(levelname).1s %(message)s"
)
log = logging.getLogger("films")


def simulate_histories(n_users, n_items, seed):
    rng = np.random.default_rng(seed)
    genre = rng.integers(0, 6, n_items)
    taste = rng.dirichlet(np.full(6, 0.3), n_users)
    popularity = rng.zipf(1.6, n_items).clip(max=30).astype(float)
    histories = []
    for u in range(n_users):
        weight = popularity * (taste[u, genre] + 0.01)
        n = rng.integers(12, 30)
        histories.append(
            rng.choice(n_items, size=n, replace=False, p=weight / weight.sum())
        )
    return histories, torch.from_numpy(genre)


class PairDataset(Dataset):
    """(user, watched film). Negatives are drawn in the collate function."""

    def __init__(self, histories):
        self.pairs = [(u, int(i)) for u, h in enumerate(histories) for i in h]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        return self.pairs[k]


class NegativeCollate:
    def __init__(self, histories, n_items, n_neg, rng):
        self.watched = [set(map(int, h)) for h in histories]
        self.n_items, self.n_neg, self.rng = n_items, n_neg, rng

    def __call__(self, batch):
        users, items = zip(*batch)
        neg = self.rng.integers(0, self.n_items, (len(batch), self.n_neg))
        for r, u in enumerate(users):
            for c in range(self.n_neg):
                while int(neg[r, c]) in self.watched[u]:
                    neg[r, c] = self.rng.integers(0, self.n_items)
        return torch.tensor(users), torch.tensor(items), torch.from_numpy(neg)


class Factoriser(nn.Module):
    def __init__(self, n_users, n_items, genre, dim):
        super().__init__()
        self.user = nn.Embedding(n_users, dim, sparse=True)
        self.item = nn.Embedding(n_items, dim, sparse=True)
        self.bias = nn.Embedding(n_items, 1, sparse=True)
        self.genre_vec = nn.Linear(6, dim, bias=False)
        self.register_buffer("genre", F.one_hot(genre, 6).float())
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def score(self, users, items):
        u = self.user(users)
        if items.dim() == 2:
            u = u.unsqueeze(1)
        v = self.item(items) + self.genre_vec(self.genre[items])
        return (u * v).sum(-1) + self.bias(items).squeeze(-1)

    def all_scores(self, users):
        v = self.item.weight + self.genre_vec(self.genre)
        return self.user(users) @ v.t() + self.bias.weight.t()


@torch.no_grad()
def ranking(model, targets, seen, k=10):
    model.eval()
    users = torch.arange(len(targets))
    s = model.all_scores(users)
    for u, items in enumerate(seen):
        s[u, torch.as_tensor(items)] = -torch.inf
    own = s.gather(1, targets[:, None])
    rank = (s > own).sum(1)
    hit = (rank < k).double()
    ndcg = hit / torch.log2(rank.double() + 2)
    model.train()
    return hit.mean().item(), ndcg.mean().item()


def popularity_ranks(data, items, train_hist, val_t):
    pop = torch.bincount(
        torch.tensor([i for _, i in data.pairs]), minlength=items
    ).float()
    return torch.stack(
        [
            (
                pop.masked_fill(torch.isin(torch.arange(items), torch.as_tensor(h)), -1)
                > pop[t]
            ).sum()
            for h, t in zip(train_hist, val_t)
        ]
    )


def losses(model, users, pos, neg, l2):
    margin = model.score(users, pos).unsqueeze(1) - model.score(users, neg)
    bpr = F.softplus(-margin).mean()
    reg = l2 * (
        model.user(users).pow(2).sum(1).mean() + model.item(pos).pow(2).sum(1).mean()
    )
    return bpr, reg


def fit(args):
    torch.manual_seed(args.seed)
    hist, genre = simulate_histories(args.users, args.items, args.seed)
    train_hist = [h[:-2] for h in hist]
    val_t = torch.tensor([int(h[-2]) for h in hist])
    test_t = torch.tensor([int(h[-1]) for h in hist])

    data = PairDataset(train_hist)
    collate = NegativeCollate(
        train_hist, args.items, args.negatives, np.random.default_rng(args.seed + 1)
    )
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, collate_fn=collate)
    log.info("%d users, %d films, %d training pairs", args.users, args.items, len(data))

    model = Factoriser(args.users, args.items, genre, args.dim)
    tables = [model.user.weight, model.item.weight, model.bias.weight]
    optimizers = [
        torch.optim.SparseAdam(tables, lr=args.lr),
        torch.optim.AdamW(
            model.genre_vec.parameters(), lr=args.lr / 2, weight_decay=0.01
        ),
    ]
    rank = popularity_ranks(data, args.items, train_hist, val_t)
    log.info("popularity baseline HR@10 %.3f", (rank < 10).double().mean().item())
    log.info(
        "untrained model HR@10 %.3f NDCG@10 %.3f", *ranking(model, val_t, train_hist)
    )

    best, best_state, since = -1.0, None, 0
    for epoch in range(args.epochs):
        total = 0.0
        for users, pos, neg in loader:
            bpr, reg = losses(model, users, pos, neg, args.l2)
            for o in optimizers:
                o.zero_grad()
            (bpr + reg).backward()
            for o in optimizers:
                o.step()
            total += bpr.item() * len(users)
        hr, ndcg = ranking(model, val_t, train_hist)
        log.info(
            "epoch %d bpr %.4f val HR@10 %.3f NDCG@10 %.3f",
            epoch,
            total / len(data),
            hr,
            ndcg,
        )
        if ndcg > best:
            best, since = ndcg, 0
            best_state = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            since += 1
            if since >= args.patience:
                log.info("no better for %d epochs, stop", since)
                break
    model.load_state_dict(best_state)
    log.info(
        "test HR@10 %.3f NDCG@10 %.3f", *ranking(model, test_t, [h[:-1] for h in hist])
    )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--users", type=int, default=300)
    ap.add_argument("--items", type=int, default=200)
    ap.add_argument("--dim", type=int, default=16)
    ap.add_argument("--negatives", type=int, default=3)
    ap.add_argument("--batch", type=int, default=160)
    ap.add_argument("--lr", type=float, default=0.01)
    ap.add_argument("--l2", type=float, default=5e-3)
    ap.add_argument("--patience", type=int, default=3)
    ap.add_argument("--seed", type=int, default=17)
    fit(ap.parse_args())
