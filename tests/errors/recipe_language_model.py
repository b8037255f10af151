#!/usr/bin/env python
"""Word-level language model for short cooking instructions."""
import argparse
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

VERBS = {
    "chop": "coarsely",
    "slice": "thinly",
    "stir": "slowly",
    "whisk": "briskly",
    "simmer": "gently",
}
FOODS = {
    "chop": ["onions", "carrots", "celery"],
    "slice": ["tomatoes", "lemons", "bread"],
    "stir": ["soup", "sauce", "rice"],
    "whisk": ["eggs", "cream", "flour"],
    "simmer": ["stock", "beans", "soup"],
}
TIMES = ["two", "five", "ten", "twenty"]


def sentence(rng):
    v = rng.choice(sorted(VERBS))
    s = [v, "the", rng.choice(FOODS[v])]
    if rng.random() < 0.6:
        s.append(VERBS[v])
    if rng.random() < 0.5:
        s += ["for", rng.choice(TIMES), "minutes"]
    return s + ["."]


def build_corpus(n, seed):
    rng = random.Random(seed)
    return [w for _ in range(n) for w in sentence(rng)]


class Vocab:
    def __init__(self, words):
        self.itos = ["<unk>"] + sorted(set(words))
        self.stoi = {w: i for i, w in enumerate(self.itos)}

    def encode(self, words):
        return torch.tensor([self.stoi.get(w, 0) for w in words])


class GRULM(nn.Module):
    def __init__(self, vocab, dim=48, hidden=96, word_drop=0.25):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(hidden, vocab)
        self.word_drop = word_drop

    def forward(self, ids):
        if self.training and self.word_drop > 0:
            hit = torch.rand(ids.shape) < self.word_drop
            ids = ids.masked_fill(hit, 0)
        h, _ = self.rnn(self.emb(ids))
        return self.out(self.drop(h))


def lm_loss(logits, ids, fixed):
    if fixed:
        logits, ids = logits[:, :-1], ids[:, 1:]
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids.reshape(-1))


def get_batch(stream, batch, length, gen):
    start = torch.randint(0, len(stream) - length, (batch,), generator=gen)
    return torch.stack([stream[s : s + length] for s in start.tolist()])


@torch.no_grad()
def sample(model, vocab, first, n, gen):
    ids = vocab.encode([first])
    for _ in range(n):
        p = model(ids[None])[0, -1].softmax(0)
        ids = torch.cat([ids, torch.multinomial(p, 1, generator=gen)])
    return " ".join(vocab.itos[i] for i in ids.tolist())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--length", type=int, default=24)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    words = build_corpus(3000, 4)
    vocab = Vocab(words)
    stream, held = vocab.encode(words), vocab.encode(build_corpus(400, 5))
    model = GRULM(len(vocab.itos))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)

    for step in range(args.steps):
        model.train()
        ids = get_batch(stream, args.batch, args.length, gen)
        loss = lm_loss(model(ids), ids, args.fixed)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 30 == 0 or step == args.steps - 1:
            model.eval()
            with torch.no_grad():
                v = get_batch(held, 32, args.length, torch.Generator().manual_seed(9))
                vl = lm_loss(model(v), v, args.fixed).item()
            print(
                f"step {step:4d} | loss {loss.item():.4f} | val ppl {math.exp(vl):.3f}"
            )

    model.eval()
    for w in ("chop", "whisk", "simmer"):
        print("  >", sample(model, vocab, w, 9, gen))

    if args.prove:
        v = get_batch(held, 64, args.length, torch.Generator().manual_seed(10))
        with torch.no_grad():
            logits = model(v)
            used = lm_loss(logits, v, args.fixed).item()
            logp = logits.log_softmax(-1)
            following = -logp[:, :-1].gather(-1, v[:, 1:, None]).mean().item()
        print(
            f"reported loss {used:.4f}, cost of the word that follows {following:.4f}"
        )
        print("fault shows:", "yes" if abs(used - following) > 1e-3 else "no")


if __name__ == "__main__":
    main()
