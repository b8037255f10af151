"""
Implicit-feedback movie recommender trained with BPR.

Two optimizers: SparseAdam for the embedding tables, AdamW for the small dense tower.
Leave-one-out protocol: last film of every user for test, the one before for validation.
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

N_USERS, N_ITEMS, N_GENRES = 400, 300, 10


def simulate(seed):
    rng = np.random.default_rng(seed)
    taste = rng.dirichlet(np.full(N_GENRES, 0.25), N_USERS)
    genre = rng.integers(0, N_GENRES, N_ITEMS)
    popularity = rng.pareto(1.5, N_ITEMS) + 0.3
    histories = []
    for u in range(N_USERS):
        p = (taste[u][genre] + 0.01) * popularity
        n = rng.integers(12, 30)
        histories.append(rng.choice(N_ITEMS, size=n, replace=False, p=p / p.sum()))
    return histories, genre


class Interactions(Dataset):
    def __init__(self, train_lists):
        self.pairs = [(u, int(i)) for u, items in enumerate(train_lists) for i in items]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        return self.pairs[k]


class NegativeSampler:
    """Collate function: uniform negatives, redrawn while the user has them in training."""

    def __init__(self, train_lists, n_neg):
        self.seen = torch.zeros(N_USERS, N_ITEMS, dtype=torch.bool)
        for u, items in enumerate(train_lists):
            self.seen[u, torch.as_tensor(items)] = True
        self.n_neg = n_neg

    def __call__(self, batch):
        user = torch.tensor([u for u, _ in batch])
        pos = torch.tensor([i for _, i in batch])
        neg = torch.randint(N_ITEMS, (len(batch), self.n_neg))
        clash = self.seen[user.unsqueeze(1), neg]
        while clash.any():
            neg[clash] = torch.randint(N_ITEMS, (int(clash.sum()),))
            clash = self.seen[user.unsqueeze(1), neg]
        return user, pos, neg


class TwoPart(nn.Module):
    """score = <user, item + tower(genre)> + item bias"""

    def __init__(self, genre, dim=24):
        super().__init__()
        self.user = nn.Embedding(N_USERS, dim, sparse=True)
        self.item = nn.Embedding(N_ITEMS, dim, sparse=True)
        self.bias = nn.Embedding(N_ITEMS, 1, sparse=True)
        self.tower = nn.Sequential(
            nn.Linear(N_GENRES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, dim)
        )
        self.register_buffer(
            "genre", F.one_hot(torch.as_tensor(genre), N_GENRES).float()
        )
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def item_vectors(self, items):
        return self.item(items) + self.tower(self.genre[items])

    def forward(self, user, items):
        u = self.user(user).unsqueeze(1)
        return (u * self.item_vectors(items)).sum(-1) + self.bias(items).squeeze(-1)

    def all_scores(self, user):
        items = torch.arange(N_ITEMS)
        return self.user(user) @ self.item_vectors(items).t() + self.bias(items).t()


def ranking_metrics(scores, targets, hidden, k=10):
    """scores: users x items; hidden marks known interactions that are not candidates."""
    scores = scores.masked_fill(hidden, float("-inf"))
    target_score = scores.gather(1, targets.unsqueeze(1))
    rank = (scores > target_score).sum(1)
    hit = (rank < k).float()
    ndcg = hit / torch.log2(rank.float() + 2)
    return hit.mean().item(), ndcg.mean().item()


@torch.no_grad()
def evaluate(model, targets, hidden):
    model.eval()
    return ranking_metrics(model.all_scores(torch.arange(N_USERS)), targets, hidden)


def train_epoch(model, loader, opt_sparse, opt_dense, reg_weight):
    model.train()
    total, n = 0.0, 0
    for user, pos, neg in loader:
        scores = model(user, torch.cat([pos.unsqueeze(1), neg], dim=1))
        margin = scores[:, :1] - scores[:, 1:]
        bpr = -F.logsigmoid(margin).mean()
        # penalise the looked-up rows only, so that gradients stay sparse
        reg = (model.user(user).pow(2).sum() + model.item(pos).pow(2).sum()) / len(user)
        loss = bpr + reg_weight * reg
        opt_sparse.zero_grad()
        opt_dense.zero_grad()
        loss.backward()
        opt_sparse.step()
        opt_dense.step()
        total += bpr.item() * len(user)
        n += len(user)
    return total / n


def popularity_baseline(dataset, targets, hidden):
    counts = torch.bincount(
        torch.tensor([i for _, i in dataset.pairs]), minlength=N_ITEMS
    ).float()
    return ranking_metrics(counts.repeat(N_USERS, 1), targets, hidden)


def main(args):
    torch.manual_seed(args.seed)
    histories, genre = simulate(args.seed)
    train_lists = [h[:-2] for h in histories]
    val_target = torch.tensor([int(h[-2]) for h in histories])
    test_target = torch.tensor([int(h[-1]) for h in histories])
    collate = NegativeSampler(train_lists, args.n_neg)
    hidden_val = collate.seen
    hidden_test = hidden_val.clone()
    hidden_test[torch.arange(N_USERS), val_target] = True

    dataset = Interactions(train_lists)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        collate_fn=collate,
        num_workers=args.workers,
        generator=torch.Generator().manual_seed(args.seed),
    )
    hr, ndcg = popularity_baseline(dataset, test_target, hidden_test)
    print(
        f"{len(dataset)} interactions; popularity baseline HR@10 {hr:.3f} NDCG@10 {ndcg:.3f}"
    )

    model = TwoPart(genre)
    sparse_params = [model.user.weight, model.item.weight, model.bias.weight]
    opt_sparse = torch.optim.SparseAdam(sparse_params, lr=args.lr_emb)
    opt_dense = torch.optim.AdamW(
        model.tower.parameters(), lr=args.lr_dense, weight_decay=1e-2
    )
    schedulers = [
        torch.optim.lr_scheduler.StepLR(o, step_size=3, gamma=0.5)
        for o in (opt_sparse, opt_dense)
    ]

    best, best_state = -1.0, None
    for epoch in range(args.epochs):
        bpr = train_epoch(model, loader, opt_sparse, opt_dense, args.reg)
        for s in schedulers:
            s.step()
        hr, ndcg = evaluate(model, val_target, hidden_val)
        print(f"epoch {epoch} bpr {bpr:.4f} val HR@10 {hr:.3f} NDCG@10 {ndcg:.3f}")
        if ndcg > best:
            best = ndcg
            best_state = {k: v.clone() for k, v in model.state_dict().items()}

    model.load_state_dict(best_state)
    hr, ndcg = evaluate(model, test_target, hidden_test)
    print(f"test HR@10 {hr:.3f} NDCG@10 {ndcg:.3f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=256)
    ap.add_argument("--n-neg", type=int, default=4)
    ap.add_argument("--lr-emb", type=float, default=1e-2)
    ap.add_argument("--lr-dense", type=float, default=5e-3)
    ap.add_argument("--reg", type=float, default=2e-3)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--seed", type=int, default=17)
    main(ap.parse_args())
