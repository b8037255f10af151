"""
Implicit feedback matrix factorisation (BPR) with a self-written Lion optimizer,
grid over dimension and learning rate, the best setting is scored on the test items.
"""
import argparse
import copy
import itertools
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Optimizer

N_USERS, N_BOOKS = 300, 240


class Lion(Optimizer):
    """sign of the interpolated momentum, decoupled weight decay"""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            lr, (b1, b2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"]
                p.mul_(1 - lr * group["weight_decay"])
                update = (m * b1 + p.grad * (1 - b1)).sign_()
                p.add_(update, alpha=-lr)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)
        return loss


class WarmupCosine:
    """Small scheduler without the torch base class; call before every update."""

    def __init__(self, optimizer, total, warmup):
        self.optimizer, self.total, self.warmup = optimizer, total, warmup
        self.base = [g["lr"] for g in optimizer.param_groups]
        self.t = 0

    def step(self):
        self.t += 1
        if self.t <= self.warmup:
            f = self.t / self.warmup
        else:
            f = 0.05 + 0.95 * 0.5 * (
                1
                + math.cos(
                    math.pi * (self.t - self.warmup) / max(1, self.total - self.warmup)
                )
            )
        for g, b in zip(self.optimizer.param_groups, self.base):
            g["lr"] = b * f


def make_readers(rng):
    """users like one or two genres, popular books are read more often"""
    genre = rng.integers(0, 8, N_BOOKS)
    pop = rng.gamma(1.0, 1.0, N_BOOKS)
    train, valid, test = [], [], []
    for u in range(N_USERS):
        taste = np.full(8, 0.05)
        taste[rng.choice(8, 2, replace=False)] = (1.0, 0.6)
        p = taste[genre] * pop
        n = rng.integers(12, 25)
        read = rng.choice(N_BOOKS, n, replace=False, p=p / p.sum())
        rng.shuffle(read)  # held-out books are random ones
        valid.append(read[0])
        test.append(read[1])
        train += [(u, b) for b in read[2:]]
    return np.array(train), np.array(valid), np.array(test)


class MF(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.user = nn.Embedding(N_USERS, dim)
        self.book = nn.Embedding(N_BOOKS, dim)
        self.bias = nn.Embedding(N_BOOKS, 1)
        nn.init.normal_(self.user.weight, std=0.05)
        nn.init.normal_(self.book.weight, std=0.05)
        nn.init.zeros_(self.bias.weight)

    def forward(self, u, b):
        return (self.user(u) * self.book(b)).sum(-1) + self.bias(b).squeeze(-1)

    def all_scores(self):
        return self.user.weight @ self.book.weight.t() + self.bias.weight.squeeze(1)


class NegativeSampler:
    def __init__(self, seen, rng):
        self.seen, self.rng = seen, rng

    def __call__(self, users):
        neg = self.rng.integers(0, N_BOOKS, len(users))
        while True:
            bad = self.seen[users, neg]
            if not bad.any():
                return neg
            neg[bad] = self.rng.integers(0, N_BOOKS, bad.sum())


@torch.no_grad()
def ranking(model, target, hide, k=10):
    """hit rate and NDCG of the held-out book among all books not in `hide`"""
    s = model.all_scores().masked_fill(torch.from_numpy(hide), float("-inf"))
    t = torch.from_numpy(target)
    rank = (s > s.gather(1, t[:, None])).sum(1)
    hit = rank < k
    return hit.float().mean().item(), (hit / torch.log2(rank + 2.0)).mean().item()


def train_one(dim, lr, data, args):
    train, valid, seen = data
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    sampler = NegativeSampler(seen, rng)
    model = MF(dim)
    opt = Lion(
        [
            {"params": [model.user.weight, model.book.weight], "weight_decay": 1.0},
            {"params": [model.bias.weight], "weight_decay": 0.0},
        ],
        lr=lr,
    )
    per_epoch = math.ceil(len(train) / args.batch_size)
    sched = WarmupCosine(opt, args.epochs * per_epoch, warmup=10)
    best, best_state = -1.0, None
    for epoch in range(args.epochs):
        rows = train[rng.permutation(len(train))]
        total = 0.0
        for i in range(0, len(rows), args.batch_size):
            users, pos = rows[i : i + args.batch_size].T
            neg = sampler(users)
            u, p, n = (
                torch.from_numpy(np.ascontiguousarray(v)) for v in (users, pos, neg)
            )
            loss = -F.logsigmoid(model(u, p) - model(u, n)).mean()
            model.zero_grad()
            loss.backward()
            sched.step()
            opt.step()
            total += loss.item() * len(u)
        hr, ndcg = ranking(model, valid, seen)
        if ndcg > best:
            best, best_state = ndcg, copy.deepcopy(model.state_dict())
    print(
        f"dim {dim:3d} lr {lr:.0e}: last loss {total / len(train):.4f}, last HR@10 {hr:.3f}, best NDCG@10 {best:.4f}"
    )
    return best, best_state


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch-size", type=int, default=256)
    ap.add_argument("--seed", type=int, default=55)
    args = ap.parse_args()
    train, valid, test = make_readers(np.random.default_rng(args.seed))
    seen = np.zeros((N_USERS, N_BOOKS), dtype=bool)
    seen[train[:, 0], train[:, 1]] = True
    print(f"{len(train)} reads, {seen.mean():.1%} of the table")

    results = {}
    for dim, lr in itertools.product((8, 16), (5e-3, 1e-2)):
        results[dim, lr] = train_one(dim, lr, (train, valid, seen), args)
    (dim, lr), (score, state) = max(results.items(), key=lambda kv: kv[1][0])
    model = MF(dim)
    model.load_state_dict(state)
    hide = seen.copy()
    hide[np.arange(N_USERS), valid] = True  # already known by then
    hr, ndcg = ranking(model, test, hide)
    print(
        f"chosen dim {dim} lr {lr:.0e} (valid {score:.4f}): test HR@10 {hr:.3f} NDCG@10 {ndcg:.4f}"
    )
    pop = (
        torch.from_numpy(seen.sum(0))
        .float()
        .expand(N_USERS, -1)
        .masked_fill(torch.from_numpy(hide), float("-inf"))
    )
    rank = (pop > pop.gather(1, torch.from_numpy(test)[:, None])).sum(1)
    print(f"popularity baseline HR@10 {(rank < 10).float().mean():.3f}")


if __name__ == "__main__":
    main()
