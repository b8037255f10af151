"""Tags the parts of product names ("brand model size colour ...") with a
bidirectional LSTM over packed sequences. Padding and words that nobody annotated
have the target -100; a batch with a sentence that is too long is skipped.

    python packed_tagger.py --steps 100
"""

import argparse
import random

import torch
from torch import nn, optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

TAGS = ["other", "brand", "model", "size", "unit", "colour"]
IGNORE = -100


def lexicon():
    words = {"other": ["new", "with", "for", "the", "and", "original", "set"]}
    words["brand"] = [f"brand{i}" for i in range(20)]
    words["model"] = [f"m{i}" for i in range(30)] + [str(i) for i in range(10)]
    words["size"] = [str(i) for i in range(10)]
    words["unit"] = ["cm", "inch", "litre", "kg"]
    words["colour"] = ["red", "blue", "black", "white", "original"]
    return words


def product(rng, words):
    """Numbers are models or sizes: what follows them decides."""
    parts = [("brand",), ("model",), ("size", "unit"), ("colour",)]
    parts += [("other",)] * rng.randint(0, 6)
    if rng.random() < 0.01:
        parts *= 5  # somebody pasted a whole list
    rng.shuffle(parts)
    tags = [tag for part in parts for tag in part]
    return [rng.choice(words[tag]) for tag in tags], tags


class Corpus(torch.utils.data.Dataset):
    def __init__(self, size, seed, unannotated):
        rng, words = random.Random(seed), lexicon()
        vocabulary = sorted({w for group in words.values() for w in group})
        index = {w: i + 1 for i, w in enumerate(vocabulary)}
        self.vocabulary = len(index) + 1
        self.items = []
        for _ in range(size):
            text, tags = product(rng, words)
            target = [
                IGNORE if rng.random() < unannotated else TAGS.index(tag)
                for tag in tags
            ]
            ids = torch.tensor([index[w] for w in text])
            self.items.append((ids, torch.tensor(target)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    ids, targets = zip(*items)
    lengths = torch.tensor([len(x) for x in ids])
    ids = pad_sequence(ids, batch_first=True)
    return ids, lengths, pad_sequence(targets, True, padding_value=IGNORE)


class Tagger(nn.Module):
    def __init__(self, vocabulary, embedding=24, hidden=32):
        super().__init__()
        self.word = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(2 * hidden, len(TAGS))

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(
            self.word(ids), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.tag(states)


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for ids, lengths, targets in loader:
            known = targets != IGNORE
            guess = model(ids, lengths).argmax(-1)
            right += (guess[known] == targets[known]).sum().item()
            total += known.sum().item()
    model.train()
    return right / total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--max-length", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(6)

    corpus = Corpus(1500, seed=1, unannotated=0.1)
    train_loader = DataLoader(corpus, 24, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(Corpus(300, 2, 0.0), 50, collate_fn=collate)
    model = Tagger(corpus.vocabulary)
    criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)
    optimizer = optim.Adagrad(model.parameters(), lr=0.05)

    step = skipped = 0
    while step < args.steps:
        for ids, lengths, targets in train_loader:
            if lengths.max() > args.max_length:
                skipped += 1
                continue
            loss = criterion(model(ids, lengths).transpose(1, 2), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
            step += 1
            if step == args.steps:
                break
    accuracy = evaluate(model, test_loader)
    print(f"skipped {skipped} batches; test accuracy {accuracy:.4f}")
