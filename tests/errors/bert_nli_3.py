"""Natural language inference with a small BERT-like encoder on template sentences."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

LABELS = {"contradiction": 0, "entail": 1, "neutral": 2}
NOUNS = ["man", "woman", "dog", "child", "boy", "girl", "cat", "bird"]
VERBS = ["runs", "sleeps", "eats", "sings", "jumps", "reads"]
PLACES = ["park", "house", "street", "garden", "school", "beach"]
FILLER = "while the weather is very nice and many other people are watching from far away quietly today".split()


class Tokenizer:
    def __init__(self):
        words = (
            ["[PAD]", "[CLS]", "[SEP]", "a", "in", "the", "no", "is", "there"]
            + NOUNS
            + VERBS
            + PLACES
            + FILLER
        )
        self.index = {}
        for w in words:
            self.index.setdefault(w, len(self.index))
        self.pad_token_id = 0

    def encode_pair(self, s1, s2):
        first = ["[CLS]"] + s1.split() + ["[SEP]"]
        second = s2.split() + ["[SEP]"]
        ids = [self.index[w] for w in first + second]
        return ids, [0] * len(first) + [1] * len(second)


def make_nli(n, seed):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        noun, verb, place = rng.choice(NOUNS), rng.choice(VERBS), rng.choice(PLACES)
        s1 = f"a {noun} {verb} in the {place}"
        if rng.random() < 0.3:  # some premises go on and on
            s1 += " " + " ".join(FILLER[: rng.randint(8, len(FILLER))])
        kind = rng.choice(list(LABELS))
        if kind == "entail":
            s2 = rng.choice([f"a {noun} {verb}", f"there is a {noun} in the {place}"])
        elif kind == "contradiction":
            s2 = rng.choice([f"no {noun} {verb}", f"there is no {noun} in the {place}"])
        else:
            s2 = f"a {rng.choice([x for x in NOUNS if x != noun])} {rng.choice(VERBS)} in the {rng.choice(PLACES)}"
        rows.append((s1, s2, LABELS[kind]))
    return rows


def build_batch(tokenizer, rows, args):
    """-> ids, token types, attention mask (1 = real token), labels"""
    encoded = [tokenizer.encode_pair(a, b) for a, b, _ in rows]
    max_len = max(len(ids) for ids, _ in encoded)
    ids = torch.full((len(rows), max_len), tokenizer.pad_token_id)
    types = torch.zeros(len(rows), max_len, dtype=torch.long)
    masks = torch.ones(len(rows), max_len)
    for i, (tok, typ) in enumerate(encoded):
        ids[i, : len(tok)] = torch.tensor(tok)
        types[i, : len(tok)] = torch.tensor(typ)
        if args.fixed:
            masks[i, len(tok) :] = 0
    return ids, types, masks, torch.tensor([r[2] for r in rows])


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out = (
            heads,
            nn.Linear(dim, 3 * dim),
            nn.Linear(dim, dim),
        )

    def forward(self, x, extended_mask):
        B, T, D = x.shape
        q, k, v = (
            self.qkv(x)
            .view(B, T, 3, self.heads, D // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        scores = q @ k.transpose(-1, -2) / (D // self.heads) ** 0.5 + extended_mask
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.att, self.n1, self.n2 = (
            SelfAttention(dim, heads),
            nn.LayerNorm(dim),
            nn.LayerNorm(dim),
        )
        self.ff = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )

    def forward(self, x, m):
        x = self.n1(x + self.att(x, m))
        return self.n2(x + self.ff(x))


class BertNLIModel(nn.Module):
    def __init__(self, vocab, dim=48, heads=4, depth=2):
        super().__init__()
        self.word, self.token_type, self.pos = (
            nn.Embedding(vocab, dim),
            nn.Embedding(2, dim),
            nn.Embedding(48, dim),
        )
        self.norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.nli_head = nn.Linear(dim, 3)

    def forward(self, ids, types, masks):
        x = self.norm(
            self.word(ids)
            + self.token_type(types)
            + self.pos(torch.arange(ids.size(1)))
        )
        extended = (1.0 - masks)[:, None, None, :] * -10000.0
        for layer in self.layers:
            x = layer(x, extended)
        return self.nli_head(x[:, 0])


def evaluate(model, tokenizer, rows, args):
    model.eval()
    hits = 0
    with torch.no_grad():
        for i in range(0, len(rows), 50):
            ids, types, masks, y = build_batch(tokenizer, rows[i : i + 50], args)
            hits += (model(ids, types, masks).argmax(1) == y).sum().item()
    model.train()
    return hits / len(rows)


def main():
    ap = argparse.ArgumentParser("Train a NLI model")
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    ap.add_argument("-b", "--batch_size", type=int, default=16)
    ap.add_argument("--warm_up", type=float, default=0.1)
    args = ap.parse_args()
    torch.manual_seed(4)
    random.seed(4)

    tokenizer = Tokenizer()
    train_rows, dev_rows = make_nli(2000, 1), make_nli(300, 2)
    model = BertNLIModel(len(tokenizer.index))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.01)
    warm = max(1, int(args.warm_up * args.steps))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min(
            (s + 1) / warm, max(0.0, (args.steps - s) / max(1, args.steps - warm))
        ),
    )

    for step in range(args.steps):
        ids, types, masks, y = build_batch(
            tokenizer, random.sample(train_rows, args.batch_size), args
        )
        loss = F.cross_entropy(model(ids, types, masks), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 30 == 0:
            print(
                f"step {step} loss {loss.item():.4f} dev acc {evaluate(model, tokenizer, dev_rows[:100], args):.3f}"
            )
    print(f"final dev acc {evaluate(model, tokenizer, dev_rows, args):.3f}")

    if args.prove:
        # a short pair by itself, then in one batch with a long pair
        short = min(dev_rows, key=lambda r: len(r[0] + r[1]))
        long = max(dev_rows, key=lambda r: len(r[0] + r[1]))
        with torch.no_grad():
            alone = model(*build_batch(tokenizer, [short], args)[:3])[0]
            beside = model(*build_batch(tokenizer, [short, long], args)[:3])[0]
        diff = (alone - beside).abs().max().item()
        print(f"logits move by {diff:.2e} next to a long sentence")
        print("fault shows:", "yes" if diff > 1e-3 else "no")


if __name__ == "__main__":
    main()
