"""Neural collaborative filtering on made-up film ratings. The two embedding tables
get sparse gradients and are trained by SparseAdam, the tower on top by Adam. The
validation loader keeps its order; quick checks look at its first batches only.

    python sparse_recommender.py --steps 240
"""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Ratings(Dataset):
    """Ratings by users with hidden tastes of films with hidden traits."""

    def __init__(self, users, films, count, seed):
        g = torch.Generator().manual_seed(0)  # one world for all splits
        taste = torch.randn(users, 3, generator=g)
        trait = torch.randn(films, 3, generator=g)
        mood = 0.4 * torch.randn(users, generator=g)
        g.manual_seed(seed)
        self.user = torch.randint(0, users, (count,), generator=g)
        self.film = (torch.rand(count, generator=g) ** 2 * films).long()
        score = (taste[self.user] * trait[self.film]).sum(1) / 1.7 + mood[self.user]
        noise = 0.1 * torch.randn(count, generator=g)
        self.stars = (3.0 + score + noise).clamp(0.5, 5.0)

    def __len__(self):
        return len(self.stars)

    def __getitem__(self, i):
        return self.user[i], self.film[i], self.stars[i]


class NeuralCF(nn.Module):
    def __init__(self, n_users, n_films, dim=16):
        super().__init__()
        self.user_emb = nn.Embedding(n_users, dim, sparse=True)
        self.film_emb = nn.Embedding(n_films, dim, sparse=True)
        nn.init.normal_(self.user_emb.weight, std=0.1)
        nn.init.normal_(self.film_emb.weight, std=0.1)
        self.tower = nn.Sequential(
            nn.Linear(3 * dim, 48),
            nn.ReLU(),
            nn.Linear(48, 24),
            nn.ReLU(),
            nn.Linear(24, 1),
        )
        self.mean = nn.Parameter(torch.tensor(3.0))

    def forward(self, users, films):
        u, f = self.user_emb(users), self.film_emb(films)
        z = torch.cat([u, f, u * f], dim=-1)
        return self.mean + self.tower(z).squeeze(-1)


class Fitter:
    def __init__(self, model, train_loader, valid_loader):
        self.model = model
        self.train_loader = train_loader
        self.valid_loader = valid_loader
        tables = [model.user_emb.weight, model.film_emb.weight]
        others = [p for n, p in model.named_parameters() if "_emb" not in n]
        self.optimizers = [
            torch.optim.SparseAdam(tables, lr=1e-2),
            torch.optim.Adam(others, lr=3e-3, weight_decay=1e-6),
        ]
        self.mse = nn.MSELoss()

    def sanity_check(self):
        users, films, stars = next(iter(self.train_loader))
        with torch.no_grad():
            guess = self.model(users, films)
        assert guess.shape == stars.shape
        print(f"one batch: {len(stars)} ratings, loss {self.mse(guess, stars):.4f}")

    @torch.no_grad()
    def validate(self, limit=None):
        self.model.eval()
        squares = seen = 0
        for number, (users, films, stars) in enumerate(self.valid_loader):
            if limit is not None and number >= limit:
                break
            squares += (self.model(users, films) - stars).square().sum().item()
            seen += len(stars)
        self.model.train()
        return (squares / seen) ** 0.5

    def fit(self, max_steps):
        done = 0
        while done < max_steps:
            for users, films, stars in self.train_loader:
                for optimizer in self.optimizers:
                    optimizer.zero_grad()
                loss = self.mse(self.model(users, films), stars)
                loss.backward()
                for optimizer in self.optimizers:
                    optimizer.step()
                done += 1
                if done % 40 == 0:
                    rmse = self.validate(limit=3)
                    print(f"{done} loss {loss.item():.6f} rmse~ {rmse:.4f}", flush=True)
                if done >= max_steps:
                    break
        print(f"validation rmse {self.validate():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    train = DataLoader(
        Ratings(300, 400, 16000, seed=1), options.batch_size, shuffle=True
    )
    valid = DataLoader(Ratings(300, 400, 2000, seed=2), options.batch_size)
    fitter = Fitter(NeuralCF(300, 400), train, valid)
    fitter.sanity_check()
    fitter.fit(options.steps)
