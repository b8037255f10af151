"""Multi-label genre tagging for movies from plot words + metadata.

Converted from a notebook. A bag of words goes through an EmbeddingBag, metadata
(year, runtime, budget) through an MLP, each movie may have several genres.
"""
import argparse
from typing import Dict, List

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

GENRES = [
    "action",
    "comedy",
    "drama",
    "horror",
    "romance",
    "scifi",
    "thriller",
    "western",
]
VOCAB_SIZE = 600


def make_movies(n: int, seed: int) -> List[Dict]:
    topic_rng = np.random.default_rng(0)
    topic_words = topic_rng.dirichlet(np.full(VOCAB_SIZE, 0.05), size=len(GENRES))
    prior = np.array([0.3, 0.3, 0.4, 0.12, 0.2, 0.15, 0.25, 0.06])
    rng = np.random.default_rng(seed)
    movies = []
    for _ in range(n):
        genres = rng.random(len(GENRES)) < prior
        mix = 0.3 / VOCAB_SIZE + topic_words[genres].sum(0)
        mix = mix / mix.sum()
        words = rng.choice(VOCAB_SIZE, size=rng.integers(20, 60), p=mix)
        meta = np.array(
            [
                rng.normal() - 1.2 * genres[7],  # year
                rng.normal() + 0.5 * genres[2],  # runtime
                rng.normal() + 0.8 * (genres[0] + genres[5]),  # log budget
            ]
        )
        movies.append({"words": words, "meta": meta, "genres": genres})
    return movies


class MovieDataset(Dataset):
    def __init__(self, movies):
        self.movies = movies

    def __len__(self):
        return len(self.movies)

    def __getitem__(self, i):
        m = self.movies[i]
        return (
            torch.as_tensor(m["words"], dtype=torch.long),
            torch.as_tensor(m["meta"], dtype=torch.float32),
            torch.as_tensor(m["genres"], dtype=torch.float32),
        )


def collate_movies(items):
    words, meta, genres = zip(*items)
    offsets = torch.tensor([0] + [len(w) for w in words[:-1]]).cumsum(0)
    return torch.cat(words), offsets, torch.stack(meta), torch.stack(genres)


class GenreTagger(nn.Module):
    def __init__(self, emb_dim=48, hidden=64, final="sigmoid"):
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCAB_SIZE, emb_dim, mode="mean")
        self.meta_net = nn.Sequential(nn.Linear(3, 16), nn.ReLU())
        layers = [
            nn.Linear(emb_dim + 16, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden, len(GENRES)),
        ]
        if final == "sigmoid":
            layers.append(nn.Sigmoid())
        self.classifier = nn.Sequential(*layers)

    def forward(self, words, offsets, meta):
        return self.classifier(
            torch.cat([self.bag(words, offsets), self.meta_net(meta)], dim=1)
        )


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    order = np.argsort(-scores, kind="stable")
    hits = labels[order]
    precision = np.cumsum(hits) / (np.arange(len(hits)) + 1)
    return float((precision * hits).sum() / max(hits.sum(), 1))


def evaluate(model, loader, criterion):
    model.eval()
    outputs, targets = [], []
    with torch.no_grad():
        for words, offsets, meta, genres in loader:
            outputs.append(model(words, offsets, meta))
            targets.append(genres)
    out, tgt = torch.cat(outputs), torch.cat(targets)
    ap = [
        average_precision(out[:, k].numpy(), tgt[:, k].numpy())
        for k in range(len(GENRES))
    ]
    model.train()
    return criterion(out, tgt).item(), float(np.mean(ap)), out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1984)
    train_loader = DataLoader(
        MovieDataset(make_movies(2400, 1)),
        batch_size=args.batch,
        shuffle=True,
        collate_fn=collate_movies,
        drop_last=True,
    )
    val_loader = DataLoader(
        MovieDataset(make_movies(500, 2)), batch_size=250, collate_fn=collate_movies
    )

    final = "sigmoid"
    if args.fixed:
        final = "none"
    model = GenreTagger(final=final)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=2
    )

    step, epoch, best = 0, 0, 0.0
    outputs = None
    while step < args.steps:
        epoch_loss, batches = 0.0, 0
        for words, offsets, meta, genres in train_loader:
            out = model(words, offsets, meta)
            loss = criterion(out, genres)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
            batches += 1
            step += 1
            if step >= args.steps:
                break
        epoch += 1
        val_loss, val_map, outputs = evaluate(model, val_loader, criterion)
        scheduler.step(val_loss)
        best = max(best, val_map)
        print(
            f"epoch {epoch} | train {epoch_loss / batches:.4f} | val {val_loss:.4f} | "
            f"mAP {val_map:.4f} | lr {optimizer.param_groups[0]['lr']:.1e}"
        )
    print(f"best mAP {best:.4f}")

    if args.prove:
        assumed = torch.sigmoid(outputs)
        print("fault shows:", "yes" if assumed.min() >= 0.5 else "no")


if __name__ == "__main__":
    main()
