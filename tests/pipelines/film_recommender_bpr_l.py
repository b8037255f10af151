# Implicit-feedback recommender: matrix factorisation with BPR loss.
# Sparse embedding gradients (SparseAdam) for the factors, AdamW for a small side tower
# over the item features -> two optimizers.
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

N_USERS, N_ITEMS, N_FEATURES, DIM = 400, 300, 10, 16


def make_interactions(seed):
    rng = np.random.default_rng(seed)
    user_taste = rng.normal(size=(N_USERS, 5))
    item_style = rng.normal(size=(N_ITEMS, 5))
    features = item_style @ rng.normal(size=(5, N_FEATURES)) + rng.normal(
        0, 0.5, (N_ITEMS, N_FEATURES)
    )
    popularity = rng.normal(0, 0.7, N_ITEMS)
    score = (
        user_taste @ item_style.T + popularity + rng.gumbel(0, 1.0, (N_USERS, N_ITEMS))
    )
    liked = np.argsort(-score, axis=1)[:, :22]
    # two films per user are held out, one to tune on and one for the test
    order = rng.permuted(liked, axis=1)
    valid, test, train = order[:, 0], order[:, 1], order[:, 2:]
    return train, valid, test, features.astype(np.float32)


class Sampler:
    """Uniform positive pairs, negatives drawn among films the user has not seen in training."""

    def __init__(self, train, batch, seed):
        self.pairs = np.stack(
            [np.repeat(np.arange(N_USERS), train.shape[1]), train.ravel()], axis=1
        )
        self.seen = np.zeros((N_USERS, N_ITEMS), dtype=bool)
        self.seen[self.pairs[:, 0], self.pairs[:, 1]] = True
        self.batch = batch
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return -(-len(self.pairs) // self.batch)

    def __iter__(self):
        order = self.rng.permutation(len(self.pairs))
        for a in range(0, len(order), self.batch):
            chunk = self.pairs[order[a : a + self.batch]]
            u, pos = chunk[:, 0], chunk[:, 1]
            neg = self.rng.integers(0, N_ITEMS, len(u))
            while True:
                bad = self.seen[u, neg]
                if not bad.any():
                    break
                neg[bad] = self.rng.integers(0, N_ITEMS, int(bad.sum()))
            yield torch.from_numpy(u), torch.from_numpy(pos), torch.from_numpy(neg)


class Recommender(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.user = nn.Embedding(N_USERS, DIM, sparse=True)
        self.item = nn.Embedding(N_ITEMS, DIM, sparse=True)
        self.bias = nn.Embedding(N_ITEMS, 1, sparse=True)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)
        self.tower = nn.Sequential(
            nn.Linear(N_FEATURES, 32), nn.ReLU(), nn.Linear(32, DIM)
        )
        self.register_buffer("features", torch.from_numpy(features))

    def item_vectors(self, items):
        return self.item(items) + self.tower(self.features[items])

    def score(self, users, items):
        return (self.user(users) * self.item_vectors(items)).sum(-1) + self.bias(
            items
        ).squeeze(-1)

    def all_scores(self, users):
        items = torch.arange(N_ITEMS)
        return self.user(users) @ self.item_vectors(items).t() + self.bias(
            items
        ).squeeze(-1)

    def sparse_parameters(self):
        return [self.user.weight, self.item.weight, self.bias.weight]


@torch.no_grad()
def ranking_metrics(model, held_out, hide, k=10):
    """hide: films that are not candidates (already seen by the user)."""
    model.eval()
    hits, ndcg = 0.0, 0.0
    for users in torch.arange(N_USERS).split(128):
        s = model.all_scores(users)
        s[torch.from_numpy(hide[users.numpy()])] = float("-inf")
        truth = torch.from_numpy(held_out[users.numpy()])
        mine = s.gather(1, truth[:, None])
        rank = (s > mine).sum(dim=1)
        top = rank < k
        hits += top.sum().item()
        ndcg += (top.float() / torch.log2(rank.float() + 2)).sum().item()
    return hits / N_USERS, ndcg / N_USERS


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--reg", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=8)
    return ap.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)

    train, valid, test, features = make_interactions(args.seed)
    features = (features - features.mean(0)) / features.std(0)
    sampler = Sampler(train, args.batch, args.seed)
    seen_train = sampler.seen
    seen_train_valid = seen_train.copy()
    seen_train_valid[np.arange(N_USERS), valid] = True

    model = Recommender(features)
    opt_emb = torch.optim.SparseAdam(model.sparse_parameters(), lr=0.02)
    opt_tower = torch.optim.AdamW(model.tower.parameters(), lr=3e-3, weight_decay=1e-2)
    optimizers = (opt_emb, opt_tower)
    sched = torch.optim.lr_scheduler.StepLR(opt_tower, step_size=4, gamma=0.5)

    pop = np.bincount(train.ravel(), minlength=N_ITEMS).astype(np.float32)
    pop_scores = np.where(seen_train, -np.inf, pop[None])
    pop_rank = (pop_scores > np.take_along_axis(pop_scores, valid[:, None], 1)).sum(1)
    print(
        f"{len(sampler)} batches per epoch; popularity baseline HR@10 {np.mean(pop_rank < 10):.3f}"
    )

    best, best_state = -1.0, None
    for epoch in range(1, args.epochs + 1):
        model.train()
        loss_sum = auc_sum = count = 0.0
        for u, pos, neg in sampler:
            diff = model.score(u, pos) - model.score(u, neg)
            bpr = F.softplus(-diff).mean()
            reg = sum(
                t.pow(2).sum(1).mean()
                for t in (model.user(u), model.item(pos), model.item(neg))
            )
            loss = bpr + args.reg * reg
            for o in optimizers:
                o.zero_grad()
            loss.backward()
            for o in optimizers:
                o.step()
            loss_sum += bpr.item() * len(u)
            auc_sum += (diff > 0).sum().item()
            count += len(u)
        sched.step()
        hr, ndcg = ranking_metrics(model, valid, seen_train)
        flag = ""
        if ndcg > best:
            best, flag = ndcg, " *"
            best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        print(
            f"epoch {epoch:2d} bpr {loss_sum / count:.4f} pair acc {auc_sum / count:.3f} "
            f"HR@10 {hr:.3f} NDCG@10 {ndcg:.3f}{flag}"
        )

    model.load_state_dict(best_state)
    hr, ndcg = ranking_metrics(model, test, seen_train_valid)
    print(f"test HR@10 {hr:.3f} NDCG@10 {ndcg:.3f}")


if __name__ == "__main__":
    main()
