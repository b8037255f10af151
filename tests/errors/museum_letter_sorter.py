#!/usr/bin/env python
# Sorts letters that arrive at a museum into the department that should answer them.
# fastText-like: word and hashed bigram ids, an embedding bag and a small head.
import argparse
import logging
import math
import os
import random
import tempfile
import zlib
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("letters")

DEPARTMENTS = ["coins", "maps", "costume", "ceramics", "archive", "visits"]
STEMS = ["ba", "co", "de", "fi", "gu", "ha", "li", "mo", "nu", "pe", "ra", "so", "tu"]
ENDS = ["n", "rt", "lle", "s", "ck", "m", "nd", "ve", "st"]
BIGRAM_BUCKETS = 2048


class LetterGenerator:
    """Letters mix general words, words of the topic and words of a second topic."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        words = sorted({a + b + c for a in STEMS for b in STEMS for c in ENDS})
        self.rng.shuffle(words)
        self.general = words[:200]
        self.topical = {
            d: words[200 + 40 * i : 240 + 40 * i] for i, d in enumerate(DEPARTMENTS)
        }

    def letter(self):
        label = self.rng.randrange(len(DEPARTMENTS))
        own = self.topical[DEPARTMENTS[label]]
        other = self.topical[self.rng.choice(DEPARTMENTS)]
        text = []
        for _ in range(self.rng.randint(12, 30)):
            u = self.rng.random()
            pool = own if u < 0.16 else other if u < 0.26 else self.general
            text.append(self.rng.choice(pool))
        return " ".join(text), label

    def take(self, n):
        return [self.letter() for _ in range(n)]


class Vectorizer:
    def __init__(self, texts, min_count=2):
        counts = Counter(w for t in texts for w in t.split())
        kept = sorted(w for w, c in counts.items() if c >= min_count)
        self.index = {w: i + 1 for i, w in enumerate(kept)}
        self.n_words = len(kept) + 1

    @property
    def size(self):
        return self.n_words + BIGRAM_BUCKETS

    def __call__(self, text):
        words = text.split()
        ids = [self.index.get(w, 0) for w in words]
        for a, b in zip(words, words[1:]):
            bucket = zlib.crc32(f"{a}_{b}".encode()) % BIGRAM_BUCKETS
            ids.append(self.n_words + bucket)
        return ids


def batches(data, size, rng=None):
    order = list(range(len(data)))
    if rng is not None:
        rng.shuffle(order)
    for i in range(0, len(order), size):
        chunk = [data[j] for j in order[i : i + size]]
        flat, offsets = [], []
        for ids, _ in chunk:
            offsets.append(len(flat))
            flat.extend(ids)
        labels = torch.tensor([label for _, label in chunk])
        yield torch.tensor(flat), torch.tensor(offsets), labels


class LetterNet(nn.Module):
    def __init__(self, vocabulary, args, dim=48, hidden=64):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocabulary, dim, mode="mean")
        self.hidden = nn.Linear(dim, hidden)
        self.drop = nn.Dropout(args.dropout)
        self.out = nn.Linear(hidden, len(DEPARTMENTS))
        self.final = nn.Softmax(dim=1)
        if args.fixed:
            self.final = nn.Identity()
        nn.init.normal_(self.bag.weight, std=0.3)

    def forward(self, flat, offsets):
        h = F.relu(self.hidden(self.bag(flat, offsets)))
        return self.final(self.out(self.drop(h)))


class Trainer:
    def __init__(self, model, train, valid, args, folder):
        self.model, self.train_set, self.valid_set = model, train, valid
        self.args, self.folder = args, folder
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=args.lr, weight_decay=1e-3
        )
        per_epoch = math.ceil(len(train) / args.batch)
        total, warm = per_epoch * args.epochs, per_epoch // 2
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda s: min((s + 1) / warm, max(0.0, (total - s) / (total - warm))),
        )
        self.rng = random.Random(args.seed)
        self.best = 0.0

    def run_epoch(self):
        self.model.train()
        total = 0.0
        for flat, offsets, labels in batches(self.train_set, self.args.batch, self.rng):
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.criterion(self.model(flat, offsets), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item() * len(labels)
        return total / len(self.train_set)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        loss, hits = 0.0, 0
        for flat, offsets, labels in batches(self.valid_set, 256):
            out = self.model(flat, offsets)
            loss += self.criterion(out, labels).item() * len(labels)
            hits += (out.argmax(1) == labels).sum().item()
        return loss / len(self.valid_set), hits / len(self.valid_set)

    def fit(self):
        for epoch in range(1, self.args.epochs + 1):
            train_loss = self.run_epoch()
            valid_loss, accuracy = self.validate()
            log.info(
                "epoch %d | train %.4f | valid %.4f | accuracy %.3f",
                epoch,
                train_loss,
                valid_loss,
                accuracy,
            )
            if accuracy > self.best:
                self.best = accuracy
                path = os.path.join(self.folder, "letters.pt")
                torch.save({"model": self.model.state_dict(), "epoch": epoch}, path)


@torch.no_grad()
def prove(model, valid):
    """Are the values handed to the cross entropy already a distribution?"""
    model.eval()
    flat, offsets, labels = next(batches(valid, 256))
    out = model(flat, offsets)
    sums = (out.sum(1) - 1).abs().max().item()
    inside = bool((out >= 0).all() and (out <= 1).all())
    seen = F.cross_entropy(out, labels).item()
    floor = math.log(1 + (len(DEPARTMENTS) - 1) * math.exp(-1))
    print(f"row sums off one by {sums:.5f}, loss {seen:.4f}, simplex floor {floor:.4f}")
    print("fault shows:", "yes" if sums < 1e-3 and inside else "no")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--dropout", type=float, default=0.3)
    p.add_argument("--seed", type=int, default=13)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)

    letters = LetterGenerator(args.seed).take(2200)
    train_texts, valid_texts = letters[:1700], letters[1700:]
    vectorizer = Vectorizer([t for t, _ in train_texts])
    train = [(vectorizer(t), y) for t, y in train_texts]
    valid = [(vectorizer(t), y) for t, y in valid_texts]
    model = LetterNet(vectorizer.size, args)
    log.info("%d word and bigram ids", vectorizer.size)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(model, train, valid, args, folder)
        trainer.fit()
        log.info("best validation accuracy %.3f", trainer.best)
    if args.prove:
        prove(model, valid)


if __name__ == "__main__":
    main()
