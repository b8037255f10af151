# Graph collaborative filtering on an implicit-feedback data set made here.
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Interaction:
    def __init__(self, n_users=200, n_items=150, seed=0):
        rng = np.random.default_rng(seed)
        self.n_users, self.n_items = n_users, n_items
        pu, qi = rng.normal(size=(n_users, 8)), rng.normal(size=(n_items, 8))
        pop = rng.gumbel(size=n_items) * 0.8
        taste = 1.0 * pu @ qi.T + pop + rng.gumbel(size=(n_users, n_items))
        self.train, self.test = [], {}
        self.seen = [set() for _ in range(n_users)]
        for u in range(n_users):
            k = int(rng.integers(10, 24))
            liked = np.argsort(-taste[u])[:k]
            rng.shuffle(liked)
            cut = max(2, k // 5)
            self.test[u] = liked[:cut].tolist()
            for i in liked[cut:].tolist():
                self.train.append((u, i))
                self.seen[u].add(i)

    def norm_adj(self):
        n = self.n_users + self.n_items
        u = torch.tensor([p[0] for p in self.train])
        i = torch.tensor([p[1] for p in self.train]) + self.n_users
        row, col = torch.cat([u, i]), torch.cat([i, u])
        deg = torch.bincount(row, minlength=n).float().clamp(min=1)
        val = deg[row].rsqrt() * deg[col].rsqrt()
        return torch.sparse_coo_tensor(
            torch.stack([row, col]), val, (n, n), check_invariants=True
        ).coalesce()


def pairwise_batches(data, batch_size, rnd):
    pairs = data.train[:]
    rnd.shuffle(pairs)
    for s in range(0, len(pairs), batch_size):
        chunk = pairs[s : s + batch_size]
        neg = []
        for u, _ in chunk:
            j = rnd.randrange(data.n_items)
            while j in data.seen[u]:
                j = rnd.randrange(data.n_items)
            neg.append(j)
        yield (
            torch.tensor([p[0] for p in chunk]),
            torch.tensor([p[1] for p in chunk]),
            torch.tensor(neg),
        )


def bpr_loss(u, i, j):
    return -F.logsigmoid((u * i).sum(1) - (u * j).sum(1)).mean()


def l2_reg_loss(reg, *embs):
    return reg * sum(e.pow(2).sum() / len(e) for e in embs) / 2


class LightEncoder(nn.Module):
    def __init__(self, data, dim, n_layers):
        super().__init__()
        self.n_users, self.n_layers = data.n_users, n_layers
        self.adj = data.norm_adj()
        self.user = nn.Parameter(
            nn.init.xavier_uniform_(torch.empty(data.n_users, dim))
        )
        self.item = nn.Parameter(
            nn.init.xavier_uniform_(torch.empty(data.n_items, dim))
        )

    def forward(self):
        e = torch.cat([self.user, self.item])
        layers = [e]
        for _ in range(self.n_layers):
            e = torch.sparse.mm(self.adj, e)
            layers.append(e)
        out = torch.stack(layers).mean(0)
        return out[: self.n_users], out[self.n_users :]


@torch.no_grad()
def ranking_eval(encoder, data, k):
    users, items = encoder()
    scores = users @ items.T
    for u, seen in enumerate(data.seen):
        scores[u, list(seen)] = -1e9
    top = scores.topk(k).indices.tolist()
    recall, gain = [], []
    for u, wanted in data.test.items():
        hits = [1.0 if i in wanted else 0.0 for i in top[u]]
        recall.append(sum(hits) / len(wanted))
        ideal = sum(1 / np.log2(r + 2) for r in range(min(k, len(wanted))))
        gain.append(sum(h / np.log2(r + 2) for r, h in enumerate(hits)) / ideal)
    return float(np.mean(recall)), float(np.mean(gain))


class Recommender:
    def __init__(self, args):
        self.args = args
        self.data = Interaction(seed=args.seed)
        torch.manual_seed(args.seed)
        self.model = LightEncoder(self.data, args.dim, args.layers)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.deviation = []

    def penalty(self, users, items, u, i, j):
        if self.args.fixed:
            users, items = self.model.user, self.model.item
        return l2_reg_loss(self.args.reg, users[u], items[i], items[j])

    def compare(self, users, items, batch):
        u, i, j = batch
        params = [self.model.user, self.model.item]
        got = torch.autograd.grad(
            self.penalty(users, items, u, i, j), params, retain_graph=True
        )
        rows_u = torch.bincount(u, minlength=self.data.n_users).float()[:, None]
        rows_i = (
            torch.bincount(i, minlength=self.data.n_items)
            + torch.bincount(j, minlength=self.data.n_items)
        ).float()[:, None]
        want = [
            self.args.reg * rows_u * self.model.user / len(u),
            self.args.reg * rows_i * self.model.item / len(u),
        ]
        num = sum((a - b).pow(2).sum() for a, b in zip(got, want)).sqrt()
        den = sum(b.pow(2).sum() for b in want).sqrt()
        self.deviation.append((num / den).item())

    def train(self):
        rnd = random.Random(self.args.seed)
        step, best = 0, (0.0, 0.0, -1)
        for epoch in range(self.args.epochs):
            total = [0.0, 0.0]
            for batch in pairwise_batches(self.data, self.args.batch_size, rnd):
                u, i, j = batch
                users, items = self.model()
                rec = bpr_loss(users[u], items[i], items[j])
                reg = self.penalty(users, items, u, i, j)
                if self.args.prove and step % 20 == 0:
                    self.compare(users, items, batch)
                self.opt.zero_grad()
                (rec + reg).backward()
                self.opt.step()
                total = [total[0] + rec.item(), total[1] + reg.item()]
                step += 1
            if (epoch + 1) % 4 == 0:
                recall, gain = ranking_eval(self.model, self.data, self.args.topk)
                best = max(best, (recall, gain, epoch + 1))
                n = step / (epoch + 1)
                print(
                    f"epoch {epoch + 1:3d} step {step:4d} rec_loss {total[0] / n:.4f} reg_loss {total[1] / n:.4f} "
                    f"Recall@{self.args.topk} {recall:.4f} NDCG@{self.args.topk} {gain:.4f}"
                )
        print(f"best: Recall {best[0]:.4f} NDCG {best[1]:.4f} at epoch {best[2]}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--batch_size", type=int, default=256)
    ap.add_argument("--dim", type=int, default=32)
    ap.add_argument("--layers", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument("--reg", type=float, default=8e-3)
    ap.add_argument("--topk", type=int, default=10)
    ap.add_argument("--seed", type=int, default=2024)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    rec = Recommender(args)
    rec.train()
    if args.prove:
        worst = max(rec.deviation)
        print(
            f"relative distance between the penalty's gradient and weight decay of the used embedding rows: {worst:.4f}"
        )
        print("fault shows:", "yes" if worst > 1e-3 else "no")
