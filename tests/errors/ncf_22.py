# Neural collaborative filtering (GMF + MLP) on implicit feedback, leave-one-out evaluation.
import argparse
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def make_ratings(n_users, n_items, seed):
    """(user, item, time) rows; taste and popularity decide what somebody watches."""
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(n_users, 4))
    trait = rng.normal(size=(n_items, 4))
    popularity = rng.normal(size=n_items) * 0.7
    score = taste @ trait.T * 0.9 + popularity
    rows = []
    for u in range(n_users):
        k = int(rng.integers(8, 16))
        p = np.exp(score[u] - score[u].max())
        for t, i in enumerate(
            rng.choice(n_items, size=k, replace=False, p=p / p.sum())
        ):
            rows.append((u, int(i), t))
    return np.array(rows)


class SampleGenerator:
    def __init__(self, ratings, n_items, seed, fixed):
        self.n_items = n_items
        self.rng = np.random.default_rng(seed)
        self.train, self.test = self._split_loo(ratings)
        self.never = self._missing_items(ratings)
        self.pool = (
            self._missing_items(self.train) if fixed else self._missing_items(ratings)
        )
        self.drawn_test = 0
        self.hope = 0.0

    @staticmethod
    def _split_loo(ratings):
        train, test = [], {}
        for u in np.unique(ratings[:, 0]):
            mine = ratings[ratings[:, 0] == u]
            mine = mine[np.argsort(mine[:, 2])]
            train.append(mine[:-1])
            test[int(u)] = int(mine[-1, 1])
        return np.concatenate(train), test

    def _missing_items(self, ratings):
        everything = np.arange(self.n_items)
        return {
            int(u): np.setdiff1d(everything, ratings[ratings[:, 0] == u][:, 1])
            for u in np.unique(ratings[:, 0])
        }

    def train_loader(self, num_negatives, batch_size, gen):
        users, items, targets = [], [], []
        for u, i, _ in self.train:
            negs = self.rng.choice(self.pool[u], size=num_negatives)
            users += [u] * (1 + num_negatives)
            items += [i, *negs]
            targets += [1.0] + [0.0] * num_negatives
            self.drawn_test += int((negs == self.test[u]).sum())
            self.hope += num_negatives / (len(self.never[u]) + 1)
        data = TensorDataset(
            torch.tensor(np.array(users)),
            torch.tensor(np.array(items)),
            torch.tensor(targets),
        )
        return DataLoader(data, batch_size=batch_size, shuffle=True, generator=gen)

    def eval_lists(self, per_user):
        rng = np.random.default_rng(99)
        users, lists = [], []
        for u, pos in self.test.items():
            users.append(u)
            lists.append(
                [pos, *rng.choice(self.never[u], size=per_user, replace=False)]
            )
        return torch.tensor(users), torch.tensor(np.array(lists))


class NeuMF(nn.Module):
    def __init__(self, n_users, n_items, dim=16):
        super().__init__()
        self.u_mf, self.i_mf = nn.Embedding(n_users, dim), nn.Embedding(n_items, dim)
        self.u_mlp, self.i_mlp = nn.Embedding(n_users, dim), nn.Embedding(n_items, dim)
        for e in (self.u_mf, self.i_mf, self.u_mlp, self.i_mlp):
            nn.init.normal_(e.weight, std=0.05)
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()
        )
        self.out = nn.Linear(dim + 16, 1)

    def forward(self, u, i):
        mf = self.u_mf(u) * self.i_mf(i)
        mlp = self.mlp(torch.cat([self.u_mlp(u), self.i_mlp(i)], dim=-1))
        return self.out(torch.cat([mf, mlp], dim=-1)).squeeze(-1)


@torch.no_grad()
def hit_and_ndcg(model, users, lists, k=10):
    model.eval()
    scores = model(users[:, None].expand_as(lists), lists)
    rank = (scores[:, 1:] > scores[:, :1]).sum(1).float()
    hit = (rank < k).float()
    ndcg = hit / torch.log2(rank + 2)
    model.train()
    return hit.mean().item(), ndcg.mean().item()


class Engine:
    def __init__(self, model, lr, weight_decay):
        self.model = model
        self.opt = torch.optim.Adam(
            model.parameters(), lr=lr, weight_decay=weight_decay
        )
        self.crit = nn.BCEWithLogitsLoss()
        self.steps = 0

    def train_an_epoch(self, loader, epoch):
        total = 0.0
        for u, i, y in loader:
            self.opt.zero_grad()
            loss = self.crit(self.model(u, i), y)
            loss.backward()
            self.opt.step()
            total += loss.item()
            self.steps += 1
        print(
            f"[epoch {epoch}] steps {self.steps} loss {total / len(loader):.4f}",
            end="  ",
        )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--users", type=int, default=300)
    ap.add_argument("--items", type=int, default=150)
    ap.add_argument("--negatives", type=int, default=4)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=5)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    ratings = make_ratings(args.users, args.items, args.seed)
    sampler = SampleGenerator(ratings, args.items, args.seed + 1, args.fixed)
    users, lists = sampler.eval_lists(99)
    model = NeuMF(args.users, args.items)
    engine = Engine(model, args.lr, weight_decay=1e-6)
    for epoch in range(args.epochs):
        engine.train_an_epoch(
            sampler.train_loader(args.negatives, args.batch, gen), epoch
        )
        hr, ndcg = hit_and_ndcg(model, users, lists)
        print(f"HR@10 {hr:.4f}  NDCG@10 {ndcg:.4f}")
    print(f"final HR@10 {hr:.4f}  NDCG@10 {ndcg:.4f}")

    if args.prove:
        print(
            f"times a user's held-out item came up among that user's training negatives: {sampler.drawn_test}, "
            f"by chance: {sampler.hope:.0f}"
        )
        print(
            "fault shows:", "yes" if sampler.drawn_test < 0.2 * sampler.hope else "no"
        )


if __name__ == "__main__":
    main()
