"""
hotel_review_sentiment.py

Averaged GRU states -> sentiment score (positive / negative) of hotel reviews.
Reviews are generated from templates with very different lengths.
"""
import argparse
import random
from collections import Counter

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

POSITIVE = [
    "great",
    "clean",
    "friendly",
    "lovely",
    "quiet",
    "comfortable",
    "perfect",
    "helpful",
    "tasty",
    "spacious",
]
NEGATIVE = [
    "dirty",
    "noisy",
    "rude",
    "broken",
    "smelly",
    "cold",
    "awful",
    "overpriced",
    "cramped",
    "slow",
]
NOUNS = [
    "room",
    "staff",
    "breakfast",
    "bed",
    "pool",
    "bathroom",
    "view",
    "lobby",
    "bar",
    "wifi",
    "shower",
    "balcony",
]
FILLER = (
    "we stayed here for two nights in may and then went on to the coast . our flight was late so we arrived "
    "after midnight . the hotel is close to the station and next to a park . there is a lift and a garage"
).split()
PAD = 0


def write_review(rng):
    label = rng.randint(0, 1)
    words = []
    for _ in range(rng.randint(1, 4)):
        right = rng.random() < 0.85
        bank = POSITIVE if (label == 1) == right else NEGATIVE
        adjective = rng.choice(bank)
        if rng.random() < 0.15:
            bank2 = NEGATIVE if bank is POSITIVE else POSITIVE
            words += ["the", rng.choice(NOUNS), "was", "not", rng.choice(bank2)]
        else:
            words += ["the", rng.choice(NOUNS), "was", adjective]
        if rng.random() < 0.5:
            k = rng.randint(0, len(FILLER) - 6)
            words += FILLER[k : k + rng.randint(2, 12)]
    return words, label


def build_vocab(reviews):
    counts = Counter(w for words, _ in reviews for w in words)
    return {
        "<pad>": PAD,
        **{w: i + 1 for i, (w, _) in enumerate(sorted(counts.items()))},
    }


def make_collate(vocab):
    def collate(batch):
        ids = [
            torch.tensor([vocab[w] for w in words if w in vocab]) for words, _ in batch
        ]
        labels = torch.tensor([float(y) for _, y in batch])
        return pad_sequence(ids, batch_first=True, padding_value=PAD), labels

    return collate


class SentimentGRU(nn.Module):
    def __init__(self, vocab_size, emb=32, hidden=40, fixed=False):
        super().__init__()
        self.fixed = fixed
        self.embedding = nn.Embedding(vocab_size, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hidden, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(hidden, 1)

    def pool(self, h, tokens):
        if self.fixed:
            keep = (tokens != PAD).unsqueeze(-1).to(h.dtype)
            return (h * keep).sum(dim=1) / keep.sum(dim=1)
        return h.mean(dim=1)

    def forward(self, tokens):
        h, _ = self.gru(self.dropout(self.embedding(tokens)))
        return self.fc(self.dropout(self.pool(h, tokens))).squeeze(-1)


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for tokens, y in loader:
            right += ((model(tokens) > 0).float() == y).sum().item()
            total += len(y)
    return right / total


def train(model, train_loader, dev_loader, steps, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    criterion = nn.BCEWithLogitsLoss()
    step, epoch = 0, 0
    while step < steps:
        model.train()
        losses = []
        for tokens, y in train_loader:
            loss = criterion(model(tokens), y)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            losses.append(loss.item())
            step += 1
            if step >= steps:
                break
        epoch += 1
        print(
            "Epoch %d (%d steps): loss %.4f, dev accuracy %.4f"
            % (epoch, step, sum(losses) / len(losses), accuracy(model, dev_loader))
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    rng = random.Random(77)
    torch.manual_seed(77)
    train_reviews = [write_review(rng) for _ in range(1920)]
    dev_reviews = [write_review(rng) for _ in range(400)]
    vocab = build_vocab(train_reviews)
    collate = make_collate(vocab)
    train_loader = DataLoader(
        train_reviews, batch_size=32, shuffle=True, collate_fn=collate
    )
    dev_loader = DataLoader(dev_reviews, batch_size=100, collate_fn=collate)
    lengths = [len(w) for w, _ in train_reviews]
    print(f"{len(vocab)} words, review length {min(lengths)} to {max(lengths)}")

    model = SentimentGRU(len(vocab), fixed=args.fixed)
    train(model, train_loader, dev_loader, args.steps, args.lr)

    if args.prove:
        model.eval()
        short = min(dev_reviews, key=lambda r: len(r[0]))
        longest = max(dev_reviews, key=lambda r: len(r[0]))
        with torch.no_grad():
            alone = model(collate([short])[0])[0].item()
            together = model(collate([short, longest])[0])[0].item()
        print(
            f"score of a short review alone {alone:.5f}, in a batch with a long one {together:.5f}"
        )
        print("fault shows:", "yes" if abs(alone - together) > 1e-3 else "no")


if __name__ == "__main__":
    main()
