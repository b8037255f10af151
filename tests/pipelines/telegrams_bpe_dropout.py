"""Telegram language model with subword regularisation.

Every worker cuts its words anew with BPE-dropout, so the same telegram is seen in many spellings.
The numbers of tokens of two cuts differ; therefore the loss is divided by CHARACTERS, which do not
depend on the cut.  Evaluation always uses the plain (deterministic) cut.
"""
import argparse
import collections
import itertools
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PAD, BOS, EOS = 0, 1, 2
DEFAULT_STEPS = 140


def make_telegrams(count, seed):
    rng = random.Random(seed)
    days = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ]
    numbers = ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"]
    goods = ["lemons", "melons", "lanterns", "candles", "barrels", "kettles"]
    verbs = ["sending", "bringing", "wanting", "loading", "missing"]
    names = ["clara", "clarence", "barbara", "bernard", "leonard"]
    seen = {}
    while len(seen) < count:
        text = (
            f"arriving {rng.choice(days)} stop {rng.choice(verbs)} {rng.choice(numbers)} "
            f"{rng.choice(goods)} stop regards {rng.choice(names)}"
        )
        seen[text] = True  # a dict: no telegram twice, order kept
    return list(seen)


class Bpe:
    def __init__(self, texts, merges):
        words = collections.Counter("_" + w for t in texts for w in t.split())
        cut = {w: list(w) for w in words}
        self.rank = {}
        symbols = sorted({c for w in words for c in w})
        for r in range(merges):
            pairs = collections.Counter()
            for w, n in words.items():
                for pair in zip(cut[w], cut[w][1:]):
                    pairs[pair] += n
            if not pairs:
                break
            best = min(pairs, key=lambda p: (-pairs[p], p))
            self.rank[best] = r
            symbols.append("".join(best))
            cut = {w: self._apply(pieces, best) for w, pieces in cut.items()}
        self.pieces = ["<pad>", "<bos>", "<eos>"] + list(dict.fromkeys(symbols))
        self.index = {p: i for i, p in enumerate(self.pieces)}
        self.cache = {}

    @staticmethod
    def _apply(pieces, pair):
        out, i = [], 0
        while i < len(pieces):
            if i + 1 < len(pieces) and (pieces[i], pieces[i + 1]) == pair:
                out.append(pieces[i] + pieces[i + 1])
                i += 2
            else:
                out.append(pieces[i])
                i += 1
        return out

    def cut_word(self, word, drop=0.0, rng=None):
        if not drop and word in self.cache:
            return self.cache[word]
        pieces = list(word)
        while True:
            options = [
                (self.rank[p], i)
                for i, p in enumerate(zip(pieces, pieces[1:]))
                if p in self.rank and not (drop and rng.random() < drop)
            ]
            if not options:
                break
            _, i = min(options)
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        if not drop:
            self.cache[word] = pieces
        return pieces

    def encode(self, text, drop=0.0, rng=None):
        pieces = [p for w in text.split() for p in self.cut_word("_" + w, drop, rng)]
        return [BOS] + [self.index[p] for p in pieces] + [EOS]

    def decode(self, ids):
        return "".join(self.pieces[i] for i in ids if i > EOS).replace("_", " ").strip()


class TelegramStream(IterableDataset):
    """Endless; each worker owns a slice and its own random numbers (DataLoader's seed + worker id)."""

    def __init__(self, texts, bpe, drop):
        self.texts, self.bpe, self.drop = texts, bpe, drop

    def __iter__(self):
        info = get_worker_info()
        worker, workers, seed = (
            (info.id, info.num_workers, info.seed) if info else (0, 1, 0)
        )
        rng = random.Random(seed)
        mine = self.texts[worker::workers]
        while True:
            rng.shuffle(mine)
            for text in mine:
                yield self.bpe.encode(text, self.drop, rng), len(text) + 1


def collate(rows):
    width = max(len(ids) for ids, _ in rows)
    batch = torch.full((len(rows), width), PAD)
    for r, (ids, _) in enumerate(rows):
        batch[r, : len(ids)] = torch.tensor(ids)
    return batch, sum(chars for _, chars in rows)


class GruLm(nn.Module):
    def __init__(self, vocab, emb=48, hidden=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hidden, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens):
        return self.head(self.gru(self.embed(tokens))[0])


def nll_sum(model, batch):
    logits = model(batch[:, :-1])
    return F.cross_entropy(
        logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=PAD, reduction="sum"
    )


@torch.no_grad()
def bits_per_char(model, texts, bpe):
    model.eval()
    total, chars = 0.0, 0
    for at in range(0, len(texts), 100):
        batch, n = collate([(bpe.encode(t), len(t) + 1) for t in texts[at : at + 100]])
        total, chars = total + nll_sum(model, batch).item(), chars + n
    model.train()
    return total / chars / math.log(2)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    steps = ap.parse_args().steps
    torch.manual_seed(5)
    texts = make_telegrams(1200, seed=5)
    train, valid = texts[:1000], texts[1000:]
    assert not set(train) & set(valid)
    bpe = Bpe(train, merges=70)
    probe = random.Random(1)
    for t in valid[:50]:  # whatever the cut, the text must come back
        assert bpe.decode(bpe.encode(t)) == t == bpe.decode(bpe.encode(t, 0.3, probe))
    loader = DataLoader(
        TelegramStream(train, bpe, drop=0.1),
        batch_size=32,
        num_workers=2,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(11),
    )
    model = GruLm(len(bpe.pieces))
    opt = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, 6e-3, total_steps=max(steps, 2), pct_start=0.2
    )
    before = bits_per_char(model, valid, bpe)
    for step, (batch, chars) in enumerate(itertools.islice(loader, steps)):
        loss = nll_sum(model, batch) / chars
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0 or step == steps - 1:
            print(
                f"step {step:4d} train bits/char {loss.item() / math.log(2):.3f} "
                f"valid bits/char {bits_per_char(model, valid, bpe):.3f}"
            )
    after = bits_per_char(model, valid, bpe)
    print(f"valid bits/char {before:.3f} -> {after:.3f} ({len(bpe.pieces)} pieces)")
    if steps >= DEFAULT_STEPS:
        assert after < 0.35 * before


if __name__ == "__main__":
    main()
