"""Which podcast next?  Matrix factorisation with pairwise ranking loss on listening histories."""
import argparse
import random
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F

N_USERS, N_SHOWS, TASTES = 150, 80, 6


def listening_log(seed):
    """(user, show) pairs; listeners share tastes and follow 20-30 of the shows of the platform."""
    g = torch.Generator().manual_seed(seed)
    u = torch.randn(N_USERS, TASTES, generator=g)
    v = torch.randn(N_SHOWS, TASTES, generator=g)
    affinity = u @ v.t() + 0.5 * torch.randn(N_SHOWS, generator=g)
    noise = -torch.log(-torch.log(torch.rand(N_USERS, N_SHOWS, generator=g)))
    ranked = (affinity + noise).argsort(dim=1, descending=True)
    pairs = []
    for user in range(N_USERS):
        n = int(torch.randint(20, 31, (1,), generator=g))
        pairs.append(torch.stack([torch.full((n,), user), ranked[user, :n]], dim=1))
    pairs = torch.cat(pairs)
    return pairs[torch.randperm(len(pairs), generator=g)]


def leave_five_out(pairs):
    kept, held, count = [], defaultdict(list), defaultdict(int)
    for row in pairs:
        user = row[0].item()
        if count[user] < 5:
            count[user] += 1
            held[user].append(row[1].item())
        else:
            kept.append(row)
    return torch.stack(kept), held


class NegativeSampler:
    def __init__(self, pairs, seed, fixed=False):
        self.rnd = random.Random(seed)
        self.heard = {}
        for user in pairs[:, 0].unique().tolist():
            shows = pairs[pairs[:, 0] == user, 1]
            self.heard[user] = set(shows.tolist() if fixed else shows)

    def draw(self, users):
        out = []
        for user in users.tolist():
            show = self.rnd.randrange(N_SHOWS)
            while show in self.heard[user]:
                show = self.rnd.randrange(N_SHOWS)
            out.append(show)
        return torch.tensor(out)


class BPR(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.user = nn.Embedding(N_USERS, dim)
        self.show = nn.Embedding(N_SHOWS, dim)
        self.bias = nn.Embedding(N_SHOWS, 1)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.show.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, user, show):
        return (self.user(user) * self.show(show)).sum(-1) + self.bias(show).squeeze(-1)

    def all_scores(self):
        return self.user.weight @ self.show.weight.t() + self.bias.weight.squeeze(-1)


@torch.no_grad()
def recall_at(model, train_pairs, held, k=10):
    scores = model.all_scores()
    scores[train_pairs[:, 0], train_pairs[:, 1]] = float("-inf")
    top = scores.topk(k, dim=1).indices.tolist()
    hits = [len(set(top[u]) & set(shows)) / len(shows) for u, shows in held.items()]
    return sum(hits) / len(hits)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--epochs", type=int, default=15)
    cli.add_argument("--dim", type=int, default=12)
    cli.add_argument("--batch", type=int, default=128)
    cli.add_argument("--lr", type=float, default=0.02)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    args = cli.parse_args()

    torch.manual_seed(23)
    train_pairs, held = leave_five_out(listening_log(seed=23))
    sampler = NegativeSampler(train_pairs, seed=24, fixed=args.fixed)
    model = BPR(args.dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)
    gen = torch.Generator().manual_seed(25)
    known = torch.zeros(N_USERS, N_SHOWS, dtype=torch.bool)
    known[train_pairs[:, 0], train_pairs[:, 1]] = True
    drawn = clash = 0

    print(
        f"{len(train_pairs)} plays for training, recall@10 untrained "
        f"{recall_at(model, train_pairs, held):.3f}"
    )
    for epoch in range(args.epochs):
        total = 0.0
        for rows in torch.randperm(len(train_pairs), generator=gen).split(args.batch):
            user, show = train_pairs[rows].t()
            other = sampler.draw(user)
            margin = model(user, show) - model(user, other)
            loss = -F.logsigmoid(margin).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
            drawn += len(rows)
            clash += known[user, other].sum().item()
        if epoch % 3 == 0 or epoch == args.epochs - 1:
            print(
                f"epoch {epoch:2d}  bpr {total / len(train_pairs):.4f}  "
                f"recall@10 {recall_at(model, train_pairs, held):.3f}"
            )

    if args.prove:
        print(
            f"drawn shows that the listener had played: {clash} of {drawn} ({clash / drawn:.3f})"
        )
        print("fault shows:", "yes" if clash else "no")


if __name__ == "__main__":
    main()
