"""A small language model for the lines of sea shanties.

Words come from a grammar of shanty lines.  The model is a causal transformer; words of
the input are hidden at random, which keeps it from leaning on the last word alone.
"""

import argparse
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, START, END, HIDDEN = range(4)

GRAMMAR = {
    "line": ["call who does where", "who does where", "call call who does", "oath who"],
    "call": ["heave ho", "way hey", "haul away", "blow boys"],
    "who": ["the rank name", "our rank name", "old name"],
    "rank": ["captain", "bosun", "mate", "cook"],
    "name": ["reuben", "stormalong", "sally", "tom", "hanna"],
    "does": ["went down deck", "sailed out", "hauled the rope", "sang a song"],
    "deck": ["below", "aft", "to the hold"],
    "rope": ["bowline", "halyard", "main sheet"],
    "song": ["shanty", "hymn", "ballad"],
    "where": ["in the port", "round the horn", "off the cape", "on sunday morning"],
    "port": ["harbour", "lowlands", "bay of biscay"],
    "oath": ["by the stars", "upon my soul", "by thunder"],
}


def expand(symbol, rng):
    if symbol not in GRAMMAR:
        return [symbol]
    words = []
    for part in rng.choice(GRAMMAR[symbol]).split():
        words += expand(part, rng)
    return words


class Corpus:
    def __init__(self, train_lines, valid_lines, seed):
        rng = random.Random(seed)
        train = [expand("line", rng) for _ in range(train_lines)]
        valid = [expand("line", rng) for _ in range(valid_lines)]
        words = sorted({word for text in train for word in text})
        self.words = ["<pad>", "<s>", "</s>", "<hidden>"] + words
        self.number = {word: n for n, word in enumerate(self.words)}
        self.pairs = {
            pair for text in train for pair in zip(["<s>"] + text, text + ["</s>"])
        }
        self.train = self.encode(train)
        self.valid = self.encode(valid)

    def encode(self, lines):
        longest = max(len(text) for text in lines) + 2
        table = torch.full((len(lines), longest), PAD)
        for row, text in enumerate(lines):
            ids = [START] + [self.number.get(word, HIDDEN) for word in text] + [END]
            table[row, : len(ids)] = torch.tensor(ids)
        return table


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)

    def forward(self, h):
        batch, time, width = h.shape
        q, k, v = (
            part.view(batch, time, self.heads, -1).transpose(1, 2)
            for part in self.qkv(h).chunk(3, dim=-1)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.mix(out.transpose(1, 2).reshape(batch, time, width))


class Layer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, h):
        h = h + self.dropout(self.attention(self.norm1(h)))
        return h + self.dropout(self.mlp(self.norm2(h)))


class ShantyModel(nn.Module):
    def __init__(self, words, width=48, heads=4, depth=2, longest=32, dropout=0.1):
        super().__init__()
        self.word = nn.Embedding(words, width, padding_idx=PAD)
        self.place = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, words)

    def forward(self, ids):
        h = self.word(ids) + self.place(torch.arange(ids.shape[1]))
        for layer in self.layers:
            h = layer(h)
        return self.out(self.norm(h))


def hide(ids, share, generator):
    chance = torch.rand(ids.shape, generator=generator) < share
    return torch.where(chance & (ids > HIDDEN), HIDDEN, ids)


def batch_loss(model, lines, args, generator=None):
    inputs = lines[:, :-1]
    targets = lines[:, 1:] if args.fixed else lines[:, :-1]
    if generator is not None:
        inputs = hide(inputs, args.hide, generator)
    logits = model(inputs)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)


@torch.no_grad()
def sing(model, corpus, count, generator, longest=20):
    """Sample lines word by word."""
    model.eval()
    ids = torch.full((count, 1), START)
    for _ in range(longest):
        chances = model(ids)[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=generator)], 1)
    model.train()
    lines = []
    for row in ids.tolist():
        cut = row.index(END) + 1 if END in row else len(row)
        lines.append([corpus.words[n] for n in row[:cut]])
    return lines


def soundness(lines, corpus):
    """Share of neighbouring words that also meet in the training lines."""
    pairs = [pair for line in lines for pair in zip(line, line[1:])]
    return sum(pair in corpus.pairs for pair in pairs) / len(pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--hide", type=float, default=0.25)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    corpus = Corpus(1000, 200, args.seed)
    model = ShantyModel(len(corpus.words))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    generator = torch.Generator().manual_seed(args.seed + 3)
    for epoch in range(args.epochs):
        total, steps = 0.0, 0
        order = torch.randperm(len(corpus.train), generator=generator)
        for rows in order.split(args.batch):
            loss = batch_loss(model, corpus.train[rows], args, generator)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
        model.eval()
        with torch.no_grad():
            valid = batch_loss(model, corpus.valid, args).item()
        model.train()
        print(
            f"epoch {epoch} train {total / steps:.4f} valid {valid:.4f} "
            f"perplexity {math.exp(valid):.2f}"
        )
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "shanty.pt"))
    lines = sing(model, corpus, 40, generator)
    for line in lines[:4]:
        print("  " + " ".join(line[1:]))
    print(f"sound word pairs {soundness(lines, corpus):.3f}")


if __name__ == "__main__":
    main()
