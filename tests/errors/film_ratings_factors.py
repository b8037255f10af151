import argparse
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn

"""
Film ratings with factor embeddings and a small MLP on top (NeuMF-like).

Weight decay of 0.1 as in the paper's AdamW recipe: each weight is multiplied by
(1 - lr * decay) at every update.
"""

Ratings = namedtuple("Ratings", "user film stars")
USERS, FILMS = 600, 400
# ids from here on are reserved for accounts that will sign up later
RESERVED = 50


def ratings(seed):
    rng = np.random.default_rng(seed)
    taste = rng.normal(0, 1, (USERS, 4))
    style = rng.normal(0, 1, (FILMS, 4))
    film_bias = rng.normal(0, 0.4, FILMS)
    popularity = 1.0 / np.arange(1, FILMS + 1) ** 0.7
    popularity /= popularity.sum()
    u = rng.integers(0, USERS, 24000)
    f = rng.choice(FILMS, 24000, p=popularity)
    s = (
        3.4
        + 0.45 * (taste[u] * style[f]).sum(1)
        + film_bias[f]
        + 0.3 * rng.normal(size=24000)
    )
    s = np.clip(np.round(s * 2) / 2, 0.5, 5.0)
    return Ratings(
        torch.from_numpy(u), torch.from_numpy(f), torch.from_numpy(s.astype(np.float32))
    )


class FactorModel(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.user = nn.Embedding(USERS + RESERVED, dim)
        self.film = nn.Embedding(FILMS, dim)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.film.weight, std=0.3)
        self.user_bias = nn.Embedding(USERS + RESERVED, 1)
        self.film_bias = nn.Embedding(FILMS, 1)
        nn.init.zeros_(self.user_bias.weight)
        nn.init.zeros_(self.film_bias.weight)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))
        self.mean = nn.Parameter(torch.tensor(3.4))

    def forward(self, user, film):
        p, q = self.user(user), self.film(film)
        dot = (p * q).sum(-1)
        deep = self.mlp(torch.cat([p, q], dim=-1)).squeeze(-1)
        return (
            self.mean
            + dot
            + deep
            + self.user_bias(user).squeeze(-1)
            + self.film_bias(film).squeeze(-1)
        )


def build_optimizer(model, args):
    if args.fixed:
        return torch.optim.AdamW(
            model.parameters(), lr=args.lr, weight_decay=args.decay
        )
    return torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.decay)


def rmse(model, data):
    model.eval()
    with torch.no_grad():
        error = model(data.user, data.film).clamp(0.5, 5.0) - data.stars
    model.train()
    return error.pow(2).mean().sqrt().item()


def loop(data, size, rng):
    while True:
        order = torch.from_numpy(rng.permutation(len(data.stars)))
        for rows in order.split(size):
            if len(rows) == size:
                yield Ratings(*(column[rows] for column in data))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(55)
    rng = np.random.default_rng(55)
    full = ratings(55)
    order = torch.from_numpy(rng.permutation(len(full.stars)))
    train = Ratings(*(c[order[:20000]] for c in full))
    held = Ratings(*(c[order[20000:]] for c in full))

    model = FactorModel()
    reserved_at_start = model.user.weight.detach()[USERS:].clone()
    optimizer = build_optimizer(model, args)
    criterion = nn.MSELoss()
    tracked = 0.0
    for step, batch in enumerate(loop(train, args.batch, rng)):
        if step == args.steps:
            break
        loss = criterion(model(batch.user, batch.film), batch.stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracked += loss.item()
        if (step + 1) % 50 == 0:
            size = model.film.weight.detach().norm(dim=1).mean().item()
            print(
                f"{step + 1:4d} train mse {tracked / 50:.4f}  held-out rmse {rmse(model, held):.4f}  mean film norm {size:.3f}"
            )
            tracked = 0.0

    print(
        f"held-out rmse {rmse(model, held):.4f}  (always the mean: {held.stars.std().item():.4f})"
    )

    if args.prove:
        # rows without any rating feel nothing but the decay
        now = model.user.weight.detach()[USERS:]
        wanted = reserved_at_start * (1 - args.lr * args.decay) ** args.steps
        gap = (now - wanted).abs().max().item()
        print(
            f"reserved rows: norm at the start {reserved_at_start.norm().item():.3f}, "
            f"by the recipe {wanted.norm().item():.3f}, in the model {now.norm().item():.3f}"
        )
        print("fault shows:", "yes" if gap > 1e-4 else "no")


if __name__ == "__main__":
    main()
