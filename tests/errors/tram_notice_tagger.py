"""Tagging of service notices on a tram network: line, stop, time and reason.

Notices are written from a handful of phrasings, some terse and some long-winded.  The
tagger is a bidirectional GRU with a character-free word vocabulary.
"""

import argparse
import random
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

TAGS = ["O", "LINE", "STOP", "TIME", "REASON"]
TAG_ID = {tag: number for number, tag in enumerate(TAGS)}

STREETS = "mill bridge castle garden harbour market abbey station tower orchard".split()
KINDS = "street square gate lane hill".split()
COLOURS = "red green blue amber violet".split()
REASONS = "signal track driver power vehicle police".split()
FAILURES = "failure works shortage fault operation".split()
FILLER = (
    "passengers are kindly asked to use the replacement bus and to allow more time "
    "we thank you for your patience and apologise for the trouble this causes "
    "tickets stay valid on all other services of the network until further notice"
).split()


def line(rng):
    if rng.random() < 0.5:
        return [("line", "LINE"), (str(rng.randint(1, 19)), "LINE")]
    return [(rng.choice(COLOURS), "LINE"), ("tram", "LINE")]


def stop(rng):
    return [(rng.choice(STREETS), "STOP"), (rng.choice(KINDS), "STOP")]


def clock(rng):
    return [(str(rng.randint(5, 23)), "TIME"), (rng.choice(["00", "15", "30"]), "TIME")]


def reason(rng):
    return [(rng.choice(REASONS), "REASON"), (rng.choice(FAILURES), "REASON")]


def plain(text):
    return [(word, "O") for word in text.split()]


def filler(rng, words):
    start = rng.randrange(len(FILLER))
    return [(FILLER[(start + i) % len(FILLER)], "O") for i in range(words)]


def notice(rng):
    shape = rng.randrange(4)
    if shape == 0:
        body = line(rng) + plain("delayed at") + stop(rng)
    elif shape == 1:
        body = line(rng) + plain("ends at") + stop(rng) + plain("from") + clock(rng)
    elif shape == 2:
        body = plain("because of") + reason(rng) + line(rng) + plain("skips")
        body += stop(rng) + plain("and") + stop(rng)
    else:
        body = plain("market day near") + stop(rng) + plain("until") + clock(rng)
        body += plain("no") + line(rng)
    if rng.random() < 0.2:
        body = filler(rng, rng.randint(18, 36)) + body
    elif rng.random() < 0.3:
        body = body + filler(rng, rng.randint(2, 8))
    return [word for word, _ in body], [tag for _, tag in body]


class Notices(Dataset):
    def __init__(self, count, rng, vocabulary=None):
        self.items = [notice(rng) for _ in range(count)]
        if vocabulary is None:
            words = sorted({word for words, _ in self.items for word in words})
            vocabulary = {"<pad>": 0, "<unk>": 1}
            vocabulary.update({word: n + 2 for n, word in enumerate(words)})
        self.vocabulary = vocabulary

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        words, tags = self.items[index]
        ids = torch.tensor([self.vocabulary.get(word, 1) for word in words])
        return ids, torch.tensor([TAG_ID[tag] for tag in tags])


class Collate:
    def __init__(self, label_pad):
        self.label_pad = label_pad

    def __call__(self, batch):
        ids, tags = zip(*batch)
        lengths = torch.tensor([len(item) for item in ids])
        ids = pad_sequence(ids, batch_first=True, padding_value=0)
        tags = pad_sequence(tags, batch_first=True, padding_value=self.label_pad)
        return ids, tags, lengths


class Tagger(nn.Module):
    def __init__(self, words, embedding=32, hidden=32):
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.dropout = nn.Dropout(0.2)
        self.gru = nn.GRU(embedding, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, len(TAGS))

    def forward(self, ids):
        states, _ = self.gru(self.dropout(self.embedding(ids)))
        return self.out(self.dropout(states))


@torch.no_grad()
def evaluate(model, loader):
    """Accuracy over the words and macro F1 over the tags that carry information."""
    model.eval()
    table = torch.zeros(len(TAGS), len(TAGS))
    for ids, tags, lengths in loader:
        inside = torch.arange(ids.shape[1]) < lengths[:, None]
        guess = model(ids).argmax(-1)[inside]
        pairs = tags[inside] * len(TAGS) + guess
        counts = torch.bincount(pairs, minlength=len(TAGS) ** 2)
        table += counts.view(len(TAGS), len(TAGS))
    model.train()
    hits = table.diag()
    precision = hits / table.sum(0).clamp(min=1)
    recall = hits / table.sum(1).clamp(min=1)
    f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-9)
    return (hits.sum() / table.sum()).item(), f1[1:].mean().item(), recall


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.15)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    train_set = Notices(1000, rng)
    valid_set = Notices(300, rng, train_set.vocabulary)
    collate = Collate(label_pad=-100 if args.fixed else 0)
    train_loader = DataLoader(
        train_set,
        args.batch_size,
        shuffle=True,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(args.seed),
    )
    valid_loader = DataLoader(valid_set, 100, collate_fn=collate)

    model = Tagger(len(train_set.vocabulary))
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.8)
    with tempfile.TemporaryDirectory() as folder:
        best = 0.0
        for epoch in range(args.epochs):
            total = 0.0
            for ids, tags, _ in train_loader:
                optimizer.zero_grad()
                scores = model(ids)
                loss = criterion(scores.flatten(0, 1), tags.flatten())
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                total += loss.item()
            accuracy, f1, recall = evaluate(model, valid_loader)
            print(
                f"epoch {epoch}: loss {total / len(train_loader):.4f}, "
                f"words {accuracy:.4f}, F1 {f1:.4f}"
            )
            if f1 > best:
                best = f1
                torch.save(model.state_dict(), Path(folder) / "tagger.pt")
    print("recall: " + ", ".join(f"{t} {r:.3f}" for t, r in zip(TAGS, recall.tolist())))
    print(f"best F1 {best:.4f}")


if __name__ == "__main__":
    main()
