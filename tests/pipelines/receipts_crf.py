"""Marks shop, item and price in the words of receipts with a convolutional tagger and a
conditional random field written by hand. Batches are buckets of similar length, made
by a thread ahead of the training; word embeddings have a sparse optimizer of their own.
A warm-up is followed by a cosine (SequentialLR).

    python receipts_crf.py --steps 120
"""

import argparse
import queue
import threading

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WORDS, TAGS, PAD = 200, 7, 0
# Tags: 0 outside, 1 and 2 begin and inside a shop, 3 and 4 an item, 5 and 6 a price.


def receipts(count, seed):
    """Lists of (words, tags). Words tell the kind only roughly; order tells the rest."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        words, tags = [], []
        for entity in [0, *rng.integers(1, 3, rng.integers(1, 5))]:
            for _ in range(rng.integers(0, 3)):
                words.append(rng.integers(101, WORDS))
                tags.append(0)
            for i in range(rng.integers(1, 4)):
                plain = rng.random() < 0.85
                low, high = (1 + 33 * entity, 34 + 33 * entity) if plain else (1, 101)
                words.append(rng.integers(low, high))
                tags.append(2 * entity + (1 if i == 0 else 2))
        result.append((np.array(words), np.array(tags)))
    return result


def pad(samples):
    longest = max(len(words) for words, _ in samples)
    words = torch.full((len(samples), longest), PAD)
    tags = torch.zeros(len(samples), longest, dtype=torch.long)
    for i, (w, t) in enumerate(samples):
        words[i, : len(w)] = torch.from_numpy(w)
        tags[i, : len(t)] = torch.from_numpy(t)
    return words, tags, words != PAD


def buckets(data, batch_size, seed):
    """Batches without end: a shuffled pool is sorted by length and cut, then shuffled."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(data))
        for pool in np.split(order, range(8 * batch_size, len(order), 8 * batch_size)):
            pool = sorted(pool, key=lambda i: len(data[i][0]))
            cut = range(0, len(pool) - batch_size + 1, batch_size)
            batches = [pool[i : i + batch_size] for i in cut]
            for b in rng.permutation(len(batches)):
                yield pad([data[i] for i in batches[b]])


def prefetch(iterator, depth=4):
    ready = queue.Queue(depth)

    def fill():
        for item in iterator:
            ready.put(item)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield ready.get()


class Crf(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(tags))
        self.last = nn.Parameter(torch.zeros(tags))
        self.move = nn.Parameter(torch.zeros(tags, tags))

    def score(self, emissions, tags, mask):
        real = mask.float()
        own = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)
        moves = self.move[tags[:, :-1], tags[:, 1:]]
        end = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
        total = (own * real).sum(1) + (moves * real[:, 1:]).sum(1)
        return total + self.first[tags[:, 0]] + self.last[end]

    def partition(self, emissions, mask):
        alpha = self.first + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            step = torch.logsumexp(alpha.unsqueeze(2) + self.move, dim=1)
            alpha = torch.where(mask[:, t, None], step + emissions[:, t], alpha)
        return torch.logsumexp(alpha + self.last, dim=1)

    def forward(self, emissions, tags, mask):
        gain = self.score(emissions, tags, mask) - self.partition(emissions, mask)
        return -gain.sum() / mask.sum()

    def decode(self, emissions):
        """Viterbi for one receipt: (length, tags) to a list of tags."""
        best, came = self.first + emissions[0], []
        for row in emissions[1:]:
            best, back = (best.unsqueeze(1) + self.move).max(0)
            best = best + row
            came.append(back)
        tag = int((best + self.last).argmax())
        path = [tag]
        for back in reversed(came):
            tag = int(back[tag])
            path.append(tag)
        return path[::-1]


class Tagger(nn.Module):
    def __init__(self, width=32, drop=0.1):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, sparse=True)
        self.conv = nn.Conv1d(width, 2 * width, 3, padding=1)
        self.out = nn.Linear(2 * width, TAGS)
        self.crf, self.drop = Crf(TAGS), drop

    def emissions(self, words, mask):
        x = self.words(words) * mask.unsqueeze(2)
        if self.training:
            kept = torch.rand(words.shape) >= self.drop
            x = x * kept.unsqueeze(2)
        x = F.glu(self.conv(x.transpose(1, 2)), dim=1).transpose(1, 2)
        x = torch.cat([x, self.words(words)], dim=2)
        x = F.dropout(x, 0.2, self.training)
        return self.out(x)

    def forward(self, words, tags, mask):
        return self.crf(self.emissions(words, mask), tags, mask)


@torch.no_grad()
def tag_accuracy(model, data):
    model.eval()
    right = total = 0
    for words, tags in data:
        row = torch.from_numpy(words).unsqueeze(0)
        path = model.crf.decode(model.emissions(row, row != PAD)[0])
        right += int((np.array(path) == tags).sum())
        total += len(tags)
    model.train()
    return right / total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=23)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    data, val = receipts(1200, seed=1), receipts(80, seed=2)
    model = Tagger()
    rest = [p for n, p in model.named_parameters() if not n.startswith("words.")]
    optimizer = torch.optim.Adam(rest, lr=args.lr)
    sparse = torch.optim.SparseAdam(model.words.parameters(), lr=args.lr)
    warm = max(1, args.steps // 10)
    schedules = [
        torch.optim.lr_scheduler.SequentialLR(
            opt,
            [
                torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=warm),
                torch.optim.lr_scheduler.CosineAnnealingLR(
                    opt, max(1, args.steps - warm), eta_min=args.lr / 50
                ),
            ],
            milestones=[warm],
        )
        for opt in (optimizer, sparse)
    ]
    batches = prefetch(buckets(data, args.batch_size, args.seed))
    for step in range(args.steps):
        words, tags, mask = next(batches)
        loss = model(words, tags, mask)
        optimizer.zero_grad()
        sparse.zero_grad()
        loss.backward()
        optimizer.step()
        sparse.step()
        for schedule in schedules:
            schedule.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        if (step + 1) % 60 == 0 or step + 1 == args.steps:
            print(f"  tags right {tag_accuracy(model, val):.4f}", flush=True)


if __name__ == "__main__":
    main()
