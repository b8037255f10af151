"""
Sentiment of short made-up reviews, transformer encoder with padding masks.

A small hyper-parameter search (random draws), every trial trained from scratch with the
same seed; the best one is retrained longer with stochastic weight averaging and tested.
"""
import argparse
import random
from collections import Counter
from functools import partial

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.swa_utils import SWALR, AveragedModel
from torch.utils.data import DataLoader, Sampler

GOOD = "great lovely superb warm tasty friendly clean fresh brilliant cosy".split()
BAD = "awful cold rude dirty bland slow noisy stale broken dull".split()
NOUN = "soup staff room view bread service music coffee garden price bed door".split()
FILL = "the was and we it had there really then very with our".split()
PAD, UNK = 0, 1


def make_review(r):
    """Clauses with good and bad words, "not" turns a word round. Majority decides."""
    score, words = 0, []
    while score == 0 or len(words) < 8:
        for _ in range(r.randint(1, 3)):
            positive = r.random() < 0.5
            negate = r.random() < 0.1
            words += [r.choice(FILL), r.choice(NOUN), "was"]
            words += (["not"] if negate else []) + [r.choice(GOOD if positive else BAD)]
            score += 1 if positive != negate else -1
            if r.random() < 0.4:
                words.append(r.choice(FILL))
        if len(words) > 40:
            score, words = 0, []
    return words, int(score > 0)


def build_vocab(reviews, min_count=2):
    counts = Counter(w for words, _ in reviews for w in words)
    vocab = {"<pad>": PAD, "<unk>": UNK}
    for w, c in sorted(counts.items()):
        if c >= min_count:
            vocab[w] = len(vocab)
    return vocab


class BucketSampler(Sampler):
    """Batches of similar length: shuffle, sort inside pools, shuffle the batches."""

    def __init__(self, lengths, batch_size, seed, pool=20):
        self.lengths, self.batch_size, self.pool = lengths, batch_size, pool
        self.rng = random.Random(seed)

    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self):
        order = list(range(len(self.lengths)))
        self.rng.shuffle(order)
        batches, size = [], self.batch_size * self.pool
        for a in range(0, len(order), size):
            part = sorted(order[a : a + size], key=lambda i: self.lengths[i])
            batches += [
                part[b : b + self.batch_size]
                for b in range(0, len(part), self.batch_size)
            ]
        self.rng.shuffle(batches)
        return iter(batches)


def collate(batch, vocab):
    ids = [torch.tensor([vocab.get(w, UNK) for w in words]) for words, _ in batch]
    return pad_sequence(ids, batch_first=True, padding_value=PAD), torch.tensor(
        [float(y) for _, y in batch]
    )


class Classifier(nn.Module):
    def __init__(self, n_words, dim, heads, layers, dropout, max_len=48):
        super().__init__()
        self.emb = nn.Embedding(n_words, dim, padding_idx=PAD)
        self.pos = nn.Parameter(0.02 * torch.randn(max_len, dim))
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout, batch_first=True, norm_first=True
        )
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, 1)

    def forward(self, ids):
        mask = ids == PAD
        h = self.enc(self.emb(ids) + self.pos[: ids.size(1)], src_key_padding_mask=mask)
        keep = (~mask).unsqueeze(-1).float()
        pooled = (self.norm(h) * keep).sum(1) / keep.sum(1)
        return self.out(pooled).squeeze(-1)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = n = 0
    for ids, y in loader:
        hits += ((model(ids) > 0).float() == y).sum().item()
        n += len(y)
    return hits / n


def train(hp, data, vocab, steps, seed, swa_from=None):
    torch.manual_seed(seed)
    fn = partial(collate, vocab=vocab)
    loader = DataLoader(
        data["train"],
        collate_fn=fn,
        batch_sampler=BucketSampler(
            [len(w) for w, _ in data["train"]], hp["batch"], seed
        ),
    )
    valid = DataLoader(data["valid"], batch_size=200, collate_fn=fn)
    model = Classifier(len(vocab), hp["dim"], 4, hp["layers"], hp["dropout"])
    opt = torch.optim.AdamW(model.parameters(), lr=hp["lr"], weight_decay=hp["wd"])
    warmup = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 15))
    criterion = nn.BCEWithLogitsLoss()
    averaged = swa_sched = None

    step, history = 0, []
    while step < steps:
        model.train()
        for ids, y in loader:
            loss = criterion(model(ids), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            history.append(loss.item())
            if swa_from is not None and step >= swa_from:
                if averaged is None:
                    averaged = AveragedModel(model)
                    swa_sched = SWALR(opt, swa_lr=hp["lr"] / 2, anneal_epochs=5)
                else:
                    averaged.update_parameters(model)
                swa_sched.step()
            else:
                warmup.step()
            if step == steps:
                break
    acc = accuracy(model, valid)
    print(
        f"  loss {history[0]:.3f} -> {sum(history[-10:]) / len(history[-10:]):.3f}, valid {acc:.3f}"
    )
    return acc, model, averaged


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--trials", type=int, default=3)
    ap.add_argument(
        "--steps",
        type=int,
        default=60,
        help="per trial; the final run takes three times as many",
    )
    ap.add_argument("--seed", type=int, default=17)
    args = ap.parse_args()

    r = random.Random(args.seed)
    reviews = [make_review(r) for _ in range(3000)]
    data = {
        "train": reviews[:2200],
        "valid": reviews[2200:2600],
        "test": reviews[2600:],
    }
    vocab = build_vocab(data["train"])
    print(f"{len(vocab)} words, {sum(y for _, y in data['train']) / 2200:.2f} positive")

    best = (-1.0, None)
    for k in range(args.trials):
        hp = dict(
            lr=10 ** r.uniform(-2.8, -2.2),
            wd=10 ** r.uniform(-4, -2),
            dim=r.choice([32, 48]),
            layers=r.choice([1, 2]),
            dropout=r.choice([0.0, 0.1]),
            batch=32,
        )
        print(f"trial {k}: {hp}")
        acc, _, _ = train(hp, data, vocab, args.steps, args.seed)
        if acc > best[0]:
            best = (acc, hp)

    print("final run with", best[1])
    total = 3 * args.steps
    _, model, averaged = train(
        best[1], data, vocab, total, args.seed + 1, swa_from=max(1, int(total * 0.7))
    )
    test = DataLoader(
        data["test"], batch_size=200, collate_fn=partial(collate, vocab=vocab)
    )
    print(
        f"test accuracy: last weights {accuracy(model, test):.3f}, averaged {accuracy(averaged, test):.3f}"
    )


if __name__ == "__main__":
    main()
