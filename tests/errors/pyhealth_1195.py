import argparse
import math
import random
from collections import Counter, defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

# Linking hospital records: a query visit has to find the other records of the same person.

N_CODES = 300


class BM25:
    def __init__(self, docs, k1=1.5, b=0.75):
        self.ids = list(docs)
        self.tf = [Counter(docs[d]) for d in self.ids]
        self.len = np.array([len(docs[d]) for d in self.ids], dtype=float)
        df = Counter(c for t in self.tf for c in t)
        n = len(self.ids)
        self.idf = {c: math.log(1 + (n - f + 0.5) / (f + 0.5)) for c, f in df.items()}
        self.norm = k1 * (1 - b + b * self.len / self.len.mean())
        self.k1 = k1
        self.postings = defaultdict(list)
        for i, t in enumerate(self.tf):
            for c, f in t.items():
                self.postings[c].append((i, f))

    def get_scores(self, codes):
        out = np.zeros(len(self.ids))
        for c in set(codes):
            for i, f in self.postings.get(c, ()):
                out[i] += self.idf[c] * f * (self.k1 + 1) / (f + self.norm[i])
        return out


def make_records(n_people, seed):
    """Returns queries, re-entered copies of them with typing errors, corpus and the ids of all matching records."""
    rng = random.Random(seed)
    diseases = [[rng.randrange(N_CODES) for _ in range(14)] for _ in range(18)]
    queries, copies, corpus, qrels = {}, {}, {}, {}
    for p in range(n_people):
        mine = rng.sample(diseases, 2)
        personal = [rng.randrange(N_CODES) for _ in range(4)]

        def visit():
            codes = (
                rng.sample(mine[0], 5)
                + rng.sample(mine[1], 4)
                + rng.sample(personal, 3)
            )
            return codes + [rng.randrange(N_CODES) for _ in range(3)]

        queries[f"q{p}"] = visit()
        copies[f"q{p}"] = rng.sample(queries[f"q{p}"], 12) + [
            rng.randrange(N_CODES) for _ in range(3)
        ]
        hits = []
        for r in range(rng.choice([1, 2, 3])):
            corpus[f"d{p}_{r}"] = visit()
            hits.append(f"d{p}_{r}")
        qrels[f"q{p}"] = hits
    return queries, copies, corpus, qrels


def mine_hard_negatives(queries, corpus, qrels, fixed):
    bm25 = BM25(corpus)
    triples = []
    for q, positives in qrels.items():
        for pos in positives:
            if fixed:
                scores, banned = bm25.get_scores(queries[q]), set(positives)
            else:
                scores, banned = bm25.get_scores(corpus[pos]), {pos}
            for i in np.argsort(-scores):
                if bm25.ids[i] not in banned:
                    triples.append((q, pos, bm25.ids[i]))
                    break
    return triples


def bag(code_lists):
    flat = torch.tensor([c for codes in code_lists for c in codes])
    offsets = torch.tensor([0] + list(np.cumsum([len(c) for c in code_lists])[:-1]))
    return flat, offsets


class Tower(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.EmbeddingBag(N_CODES, dim, mode="mean")
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim)
        )

    def forward(self, code_lists):
        x = self.emb(*bag(code_lists))
        return F.normalize(x + self.mlp(x), dim=-1)


class Linker(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.query, self.doc = Tower(), Tower()
        self.temperature = temperature

    def loss(self, q, pos, neg):
        hq, hp, hn = self.query(q), self.doc(pos), self.doc(neg)
        hard = (hq * hn).sum(-1, keepdim=True)
        logits = torch.cat([hq @ hp.t(), hard], 1) / self.temperature
        return F.cross_entropy(logits, torch.arange(len(q)))


@torch.no_grad()
def evaluate(model, queries, corpus, qrels):
    model.eval()
    ids = list(corpus)
    docs = model.doc([corpus[d] for d in ids])
    names = list(queries)
    order = (model.query([queries[q] for q in names]) @ docs.t()).argsort(
        -1, descending=True
    )
    hit1 = mrr = all_found = 0.0
    for row, q in enumerate(names):
        ranked = [ids[int(i)] for i in order[row, :20]]
        want = set(qrels[q])
        ranks = [k for k, d in enumerate(ranked) if d in want]
        hit1 += bool(ranks) and ranks[0] == 0
        mrr += 1 / (ranks[0] + 1) if ranks else 0.0
        all_found += len(want & set(ranked[:5])) / len(want)
    n = len(names)
    model.train()
    return f"hit@1 {hit1 / n:.3f}  mrr {mrr / n:.3f}  recall@5 {all_found / n:.3f}"


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--people", type=int, default=400)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--temperature", type=float, default=0.07)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(args.seed)
    queries, copies, corpus, qrels = make_records(args.people, seed=21)
    triples = mine_hard_negatives(queries, corpus, qrels, args.fixed)
    print(
        f"{len(queries)} queries, {len(corpus)} records, {len(triples)} training triples"
    )

    model = Linker(args.temperature)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    order = list(triples)
    shuffler = random.Random(args.seed)
    for epoch in range(args.epochs):
        shuffler.shuffle(order)
        total, n = 0.0, 0
        for i in range(0, len(order) - args.batch + 1, args.batch):
            chunk = order[i : i + args.batch]
            loss = model.loss(
                [queries[q] for q, _, _ in chunk],
                [corpus[d] for _, d, _ in chunk],
                [corpus[d] for _, _, d in chunk],
            )
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total, n = total + loss.item(), n + 1
        if epoch % 2 == 0 or epoch == args.epochs - 1:
            print(
                f"epoch {epoch} loss {total / n:.4f}  {evaluate(model, copies, corpus, qrels)}"
            )

    if args.prove:
        clash = sum(neg in qrels[q] for q, _, neg in triples)
        print(
            f"triples whose third element is a record of the query's own person: {clash} of {len(triples)}"
        )
        print("fault shows:", "yes" if clash else "no")


if __name__ == "__main__":
    main()
