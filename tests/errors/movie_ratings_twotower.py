"""Rating prediction (1..5 stars) with a two-tower model on a made-up MovieLens-like table.

Big virtual batches by accumulation, because on the laptop the real table does not fit otherwise.
"""
from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Settings:
    users: int = 400
    movies: int = 250
    genres: int = 8
    ratings: int = 12000
    batch_size: int = 256
    accumulate: int = 4
    lr: float = 4e-3
    steps: int = 200
    seed: int = 31


def simulate(s: Settings) -> tuple[TensorDataset, TensorDataset, Tensor]:
    g = torch.Generator().manual_seed(s.seed)
    taste = torch.randn(s.users, s.genres, generator=g)
    genre = (torch.rand(s.movies, s.genres, generator=g) < 0.3).float()
    genre[
        torch.arange(s.movies), torch.randint(0, s.genres, (s.movies,), generator=g)
    ] = 1.0
    quality = 0.5 * torch.randn(s.movies, generator=g)
    mood = 0.4 * torch.randn(s.users, generator=g)
    u = torch.randint(0, s.users, (s.ratings,), generator=g)
    m = (torch.rand(s.ratings, generator=g) ** 1.6 * s.movies).long()
    raw = (
        3.4
        + mood[u]
        + quality[m]
        + (taste[u] * genre[m]).sum(1) / genre[m].sum(1).sqrt() * 0.7
    )
    stars = (raw + 0.5 * torch.randn(s.ratings, generator=g)).round().clamp(1, 5)
    cut = int(0.9 * s.ratings)
    return (
        TensorDataset(u[:cut], m[:cut], stars[:cut]),
        TensorDataset(u[cut:], m[cut:], stars[cut:]),
        genre,
    )


class TwoTower(nn.Module):
    def __init__(self, s: Settings, genre: Tensor, mean: float, dim: int = 16):
        super().__init__()
        self.register_buffer("genre", genre)
        self.user = nn.Embedding(s.users, dim)
        self.movie = nn.Embedding(s.movies, dim)
        self.user_bias = nn.Embedding(s.users, 1)
        self.movie_bias = nn.Embedding(s.movies, 1)
        self.movie_tower = nn.Sequential(
            nn.Linear(dim + s.genres, 32), nn.ReLU(), nn.Linear(32, dim)
        )
        self.user_tower = nn.Sequential(
            nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, dim)
        )
        self.mean = nn.Parameter(torch.tensor(mean))
        for emb in (self.user, self.movie):
            nn.init.normal_(emb.weight, std=0.3)
        for emb in (self.user_bias, self.movie_bias):
            nn.init.zeros_(emb.weight)

    def forward(self, u: Tensor, m: Tensor) -> Tensor:
        pu = self.user_tower(self.user(u))
        qm = self.movie_tower(torch.cat([self.movie(m), self.genre[m]], dim=1))
        return (
            self.mean
            + (pu * qm).sum(1)
            + self.user_bias(u).squeeze(1)
            + self.movie_bias(m).squeeze(1)
        )


def rmse(model: nn.Module, data: TensorDataset) -> float:
    model.eval()
    with torch.no_grad():
        u, m, stars = data.tensors
        err = (model(u, m).clamp(1, 5) - stars).pow(2).mean().sqrt().item()
    model.train()
    return err


def gradient_left(model: nn.Module) -> float:
    return sum(
        p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None
    )


def train(s: Settings, args: argparse.Namespace) -> list[float]:
    torch.manual_seed(s.seed)
    train_set, test_set, genre = simulate(s)
    loader = DataLoader(train_set, batch_size=s.batch_size, shuffle=True)
    model = TwoTower(s, genre, train_set.tensors[2].mean().item())
    opt = torch.optim.AdamW(model.parameters(), lr=s.lr, weight_decay=1e-5)
    mse = nn.MSELoss()
    print(f"{len(loader)} batches per epoch, {s.accumulate} batches per step")

    at_start = []
    done, epoch = 0, 0
    opt.zero_grad()
    while done < s.steps:
        at_start.append(gradient_left(model))
        total = 0.0
        for i, (u, m, stars) in enumerate(loader):
            update = (i + 1) % s.accumulate == 0
            group = s.accumulate
            if args.fixed:
                update = update or i + 1 == len(loader)
                group = min(
                    s.accumulate, len(loader) - i // s.accumulate * s.accumulate
                )
            loss = mse(model(u, m), stars)
            (loss / group).backward()
            total += loss.item()
            if update:
                opt.step()
                opt.zero_grad()
                done += 1
                if done >= s.steps:
                    break
        epoch += 1
        print(
            f"epoch {epoch:2d}  steps {done:3d}  train mse {total / (i + 1):.4f}  test rmse {rmse(model, test_set):.4f}"
        )
    return at_start


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=Settings.steps)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    at_start = train(Settings(steps=args.steps), args)
    if args.prove:
        print(
            "sum of |grad| at the start of each epoch:",
            " ".join(f"{v:.3f}" for v in at_start),
        )
        print("fault shows:", "yes" if any(v > 0 for v in at_start) else "no")


if __name__ == "__main__":
    main()
