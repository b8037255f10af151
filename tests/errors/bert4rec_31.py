"""Masked-item sequence recommender on a made-up movie log."""
import argparse
import math
import random
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD = 0


def make_log(n_users, n_titles, seed):
    """(user, title) events in time order. Titles form series; users follow a series and return to some blockbusters."""
    rng = random.Random(seed)
    titles = [f"tt{1000 + i}" for i in range(n_titles)]
    hits = titles[:4]
    log = []
    for u in range(n_users):
        pos = rng.randrange(4, n_titles)
        for k in range(rng.randrange(8, 16)):
            if k % 4 == 3:
                log.append((u, hits[0] if pos % 2 == 0 else rng.choice(hits[1:])))
            else:
                pos = 4 + (pos - 4 + rng.choice([1, 1, 1, 2])) % (n_titles - 4)
                log.append((u, titles[pos]))
    return log


class Catalogue:
    def __init__(self, log, fixed):
        ranked = [t for t, _ in Counter(t for _, t in log).most_common()]
        self.index = {t: i for i, t in enumerate(ranked, start=1 if fixed else 0)}
        self.num_items = len(ranked)
        self.mask = self.num_items + 1
        self.vocab = self.num_items + 2
        self.item_ids = sorted(self.index.values())

    def sequences(self, log):
        seqs = {}
        for u, t in log:
            seqs.setdefault(u, []).append(self.index[t])
        return list(seqs.values())


class MaskedSequences:
    def __init__(self, seqs, cat, max_len, mask_prob, seed):
        self.seqs, self.cat, self.max_len, self.p = seqs, cat, max_len, mask_prob
        self.rng = random.Random(seed)

    def example(self, seq):
        tokens, labels = [], []
        for s in seq:
            r = self.rng.random()
            if r < self.p:
                r /= self.p
                tokens.append(
                    self.cat.mask
                    if r < 0.8
                    else self.rng.choice(self.cat.item_ids)
                    if r < 0.9
                    else s
                )
                labels.append(s)
            else:
                tokens.append(s)
                labels.append(PAD)
        return left_pad(tokens, self.max_len), left_pad(labels, self.max_len)

    def epoch(self, batch_size):
        order = list(range(len(self.seqs)))
        self.rng.shuffle(order)
        for i in range(0, len(order), batch_size):
            rows = [self.example(self.seqs[j]) for j in order[i : i + batch_size]]
            yield torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])


def left_pad(xs, n):
    xs = xs[-n:]
    return [PAD] * (n - len(xs)) + xs


class Bert4Rec(nn.Module):
    def __init__(self, vocab, max_len, dim=48, heads=2, layers=2):
        super().__init__()
        self.token = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.position = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        block = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, 0.1, batch_first=True, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, vocab)
        nn.init.normal_(self.token.weight, std=1 / math.sqrt(dim))
        with torch.no_grad():
            self.token.weight[PAD].zero_()

    def forward(self, x):
        pad = x == PAD
        h = self.norm(self.token(x) + self.position)
        return self.out(self.encoder(h, src_key_padding_mask=pad))


@torch.no_grad()
def evaluate(model, train, held, cat, max_len, k=5):
    model.eval()
    x = torch.tensor([left_pad(s + [cat.mask], max_len) for s in train])
    scores = model(x)[:, -1]
    allowed = torch.full((cat.vocab,), -1e9)
    allowed[cat.item_ids] = 0
    top = (scores + allowed).topk(k, dim=-1).indices
    target = torch.tensor(held)
    hit = (top == target[:, None]).float()
    gain = hit / torch.log2(torch.arange(2, k + 2).float())
    model.train()
    return hit.sum(1), gain.sum(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=14)
    ap.add_argument("--users", type=int, default=500)
    ap.add_argument("--titles", type=int, default=44)
    ap.add_argument("--max-len", type=int, default=16)
    ap.add_argument("--batch-size", type=int, default=50)
    ap.add_argument("--mask-prob", type=float, default=0.25)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=17)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    log = make_log(args.users, args.titles, args.seed)
    cat = Catalogue(log, args.fixed)
    seqs = cat.sequences(log)
    train, held = [s[:-1] for s in seqs], [s[-1] for s in seqs]
    data = MaskedSequences(train, cat, args.max_len, args.mask_prob, args.seed)
    model = Bert4Rec(cat.vocab, args.max_len)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    print(f"{cat.num_items} titles, {len(log)} events, {len(train)} users")

    step = 0
    for epoch in range(args.epochs):
        total, n = 0.0, 0
        for tokens, labels in data.epoch(args.batch_size):
            logits = model(tokens)
            loss = F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=PAD
            )
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            step, total, n = step + 1, total + loss.item(), n + 1
        if epoch % 2 == 1 or epoch == args.epochs - 1:
            hr, ndcg = evaluate(model, train, held, cat, args.max_len)
            print(
                f"epoch {epoch + 1:2d}  step {step}  loss {total / n:.4f}  HR@5 {hr.mean():.4f}  NDCG@5 {ndcg.mean():.4f}"
            )

    hr, _ = evaluate(model, train, held, cat, args.max_len)
    top = Counter(held).most_common(1)[0][0]
    sel = torch.tensor(held) == top
    print(
        f"HR@5 on the most frequent held-out title: {hr[sel].mean():.3f} ({int(sel.sum())} users)"
    )

    if args.prove:
        events = [s for seq in train for s in seq]
        lost = sum(1 for s in events if s == PAD)
        drift = (model.token.weight[PAD]).abs().sum().item()
        print(
            f"watched events carrying the filler id: {lost} of {len(events)}; norm of its embedding {drift:.3f}"
        )
        print("fault shows:", "yes" if lost else "no")


if __name__ == "__main__":
    main()
