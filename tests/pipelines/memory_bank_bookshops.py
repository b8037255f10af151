"""The next book that a reader buys: two towers with a bank of books as negatives.

A reader is the mean of the books bought before (EmbeddingBag with offsets). Both tables
have sparse gradients and SparseAdam, the rest AdamW; the row for padding stays zero.
The other books of a batch are the negatives, so that its targets are 0, 1, 2 and so on,
with the books of the last four batches, detached. That bank is empty at first: as it
fills there are more to choose from, and the loss rises although all is well. Logits are
corrected by how often a book is drawn, duplicates are masked with -inf. After each step
the learnt temperature is clamped, and rows of the table are put back into a ball.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

BOOKS, TASTES, WIDTH = 200, 8, 32


class Sales(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        popular = 1 / torch.arange(1, BOOKS + 1).float() ** 0.7
        self.rows = []
        for taste in torch.randint(TASTES, (count,), generator=generator).tolist():
            chances = popular * (torch.arange(BOOKS) % TASTES == taste)
            bought = int(torch.randint(3, 9, (1,), generator=generator))
            books = torch.multinomial(chances, bought + 1, generator=generator)
            books = books + 1  # 0 is padding
            self.rows.append((books[:-1], int(books[-1])))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    before, book = zip(*rows)
    starts = torch.tensor([0] + [len(books) for books in before[:-1]]).cumsum(0)
    return torch.cat(before), starts, torch.tensor(book)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(
            BOOKS + 1, WIDTH, mode="mean", sparse=True, padding_idx=0
        )
        self.book = nn.Embedding(BOOKS + 1, WIDTH, sparse=True, padding_idx=0)
        self.dense = nn.Sequential(
            nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH)
        )
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(10.0)))

    def readers(self, before, starts):
        mean = self.bag(before, starts)
        return F.normalize(mean + self.dense(mean), dim=-1)

    def books(self, book):
        return F.normalize(self.book(book), dim=-1)


@torch.no_grad()
def recall(net, rows):
    before, starts, book = collate(rows)
    books = F.normalize(net.book.weight[1:], dim=-1)
    best = (net.readers(before, starts) @ books.T).topk(25).indices + 1
    return best.eq(book[:, None]).any(1).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trained, held_out = Sales(2000, 1), Sales(300, 2)
    sold = torch.tensor([book for _, book in trained.rows])
    weight = 1 / torch.bincount(sold, minlength=BOOKS + 1)[sold].float().sqrt()
    sampler = WeightedRandomSampler(weight, 1920)
    loader = DataLoader(
        trained, 96, sampler=sampler, collate_fn=collate, drop_last=True
    )
    drawn = torch.bincount(sold, weights=weight, minlength=BOOKS + 1)
    log_drawn = (drawn / drawn.sum() + 1e-6).log().float()
    net = Towers()
    dense = [*net.dense.parameters(), net.log_sharpness]
    optimizers = [
        torch.optim.SparseAdam([net.bag.weight, net.book.weight], lr=2e-2),
        torch.optim.AdamW(dense, lr=3e-3),
    ]
    bank = []
    print(f"recall before {recall(net, held_out.rows):.3f}")
    for epoch in range(options.epochs):
        for before, starts, book in loader:
            readers, books = net.readers(before, starts), net.books(book)
            numbers = torch.cat([book] + [number for number, _ in bank])
            vectors = torch.cat([books] + [vector for _, vector in bank])
            logits = net.log_sharpness.exp() * readers @ vectors.T
            logits = logits - log_drawn[numbers]
            own = torch.arange(len(book))
            same = numbers[None] == book[:, None]
            same[own, own] = False
            loss = F.cross_entropy(logits.masked_fill(same, -math.inf), own)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            with torch.no_grad():
                net.log_sharpness.clamp_(0, math.log(50))
                norm = net.book.weight[book].norm(dim=1, keepdim=True)
                net.book.weight[book] *= (3 / norm).clamp(max=1)
            bank = [(book, books.detach())] + bank[:3]
        print(
            f"epoch {epoch} loss {loss.item():.3f} "
            f"recall {recall(net, held_out.rows):.3f}"
        )


if __name__ == "__main__":
    main()
