"""Bi-encoder for duplicate questions, trained on labelled pairs.

Small device batches with gradient accumulation; the loss concentrates on the
hard pairs of each device batch.
"""
import argparse
import math
import os
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ASPECTS = {
    "verb": [
        ["learn", "study", "master"],
        ["buy", "purchase", "get"],
        ["repair", "fix", "mend"],
        ["sell", "trade", "market"],
        ["clean", "wash", "scrub"],
        ["find", "locate", "discover"],
        ["choose", "pick", "select"],
        ["build", "make", "construct"],
    ],
    "object": [
        ["bike", "bicycle", "cycle"],
        ["house", "home", "flat"],
        ["laptop", "notebook", "computer"],
        ["guitar", "ukulele", "banjo"],
        ["garden", "yard", "lawn"],
        ["phone", "mobile", "handset"],
        ["sofa", "couch", "settee"],
        ["camera", "lens", "tripod"],
        ["boat", "dinghy", "canoe"],
        ["oven", "stove", "cooker"],
    ],
    "manner": [
        ["cheaply", "inexpensively", "affordably"],
        ["quickly", "fast", "rapidly"],
        ["alone", "myself", "solo"],
        ["online", "remotely", "digitally"],
        ["safely", "securely", "carefully"],
    ],
}
OPENERS = [
    "how can i",
    "what is the best way to",
    "how do you",
    "is it possible to",
    "any tips to",
]


def phrase(rng, meaning):
    words = [rng.choice(ASPECTS[k][i]) for k, i in zip(ASPECTS, meaning)]
    return f"{rng.choice(OPENERS)} {words[0]} a {words[1]} {words[2]}".split()


class QuestionPairs(Dataset):
    def __init__(self, n, seed, vocab):
        rng = random.Random(seed)
        sizes = [len(v) for v in ASPECTS.values()]
        self.rows = []
        for _ in range(n):
            a = [rng.randrange(s) for s in sizes]
            b = list(a)
            label = int(rng.random() < 0.5)
            if not label:
                for slot in rng.sample(range(3), rng.choice([1, 1, 2, 3])):
                    step = rng.randrange(1, sizes[slot])
                    b[slot] = (b[slot] + step) % sizes[slot]
            pair = [[vocab[w] for w in phrase(rng, m)] for m in (a, b)]
            self.rows.append((*pair, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def pad(seqs):
    width = max(map(len, seqs))
    return torch.tensor([s + [0] * (width - len(s)) for s in seqs])


def collate(rows):
    a, b, labels = zip(*rows)
    return pad(a), pad(b), torch.tensor(labels)


class Encoder(nn.Module):
    def __init__(self, n_words, dim=48, out=32):
        super().__init__()
        self.word = nn.Embedding(n_words, dim, padding_idx=0)
        self.gate = nn.Linear(dim, 1)
        self.dense = nn.Sequential(
            nn.Linear(dim, dim), nn.Tanh(), nn.Dropout(0.1), nn.Linear(dim, out)
        )

    def forward(self, ids):
        x = self.word(ids)
        score = self.gate(x).squeeze(-1).masked_fill(ids == 0, -math.inf)
        pooled = (score.softmax(1).unsqueeze(-1) * x).sum(1)
        return nn.functional.normalize(self.dense(pooled), dim=-1)


class OnlineContrastiveLoss(nn.Module):
    """Contrastive loss over the hard positives and hard negatives of a batch."""

    def __init__(self, encoder, margin=0.5, min_group=2):
        super().__init__()
        self.encoder, self.margin, self.min_group = encoder, margin, min_group

    def distances(self, a, b):
        return 1 - (self.encoder(a) * self.encoder(b)).sum(-1)

    def forward(self, a, b, labels):
        dist = self.distances(a, b)
        negs, poss = dist[labels == 0], dist[labels == 1]
        top = poss.max() if len(poss) >= self.min_group else negs.mean()
        low = negs.min() if len(negs) >= self.min_group else poss.mean()
        hard_negs, hard_poss = negs[negs < top], poss[poss > low]
        pull = hard_poss.pow(2).sum()
        push = nn.functional.relu(self.margin - hard_negs).pow(2).sum()
        return pull + push


@torch.no_grad()
def average_precision(encoder, loader):
    encoder.eval()
    scores, labels = [], []
    for a, b, y in loader:
        scores.append((encoder(a) * encoder(b)).sum(-1))
        labels.append(y)
    encoder.train()
    order = torch.cat(scores).argsort(descending=True)
    hits = torch.cat(labels)[order].float()
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return (precision * hits).sum().item() / hits.sum().item()


def warmup_linear(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return max(0.0, (total - step) / max(1, total - warmup))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def endless(loader):
    while True:
        yield from loader


def train(loss_model, train_loader, dev_loader, args, out):
    optimizer = torch.optim.AdamW(loss_model.parameters(), lr=args.lr)
    scheduler = warmup_linear(optimizer, args.steps // 10 + 1, args.steps)
    batches = endless(train_loader)
    best = -1.0
    loss_model.train()
    for step in range(args.steps):
        total = 0.0
        for _ in range(args.accumulate):
            loss = loss_model(*next(batches)) / args.accumulate
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(loss_model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if (step + 1) % args.eval_every == 0 or step + 1 == args.steps:
            ap = average_precision(loss_model.encoder, dev_loader)
            print(f"step {step + 1:4d}  loss {total:.4f}  dev AP {ap:.4f}")
            if ap > best:
                best = ap
                torch.save(loss_model.encoder.state_dict(), out)
    loss_model.encoder.load_state_dict(torch.load(out))
    return best


@torch.no_grad()
def prove(loss_model, loader):
    """Batches whose loss misses a pair that is harder than one of the other kind."""
    loss_model.eval()
    odd = total = 0
    for a, b, labels in loader:
        dist = loss_model.distances(a, b)
        negs, poss = dist[labels == 0], dist[labels == 1]
        if len(negs) == 0 or len(poss) == 0:
            continue
        pull = poss[poss > negs.min()].pow(2).sum()
        close = negs[negs < poss.max()]
        push = nn.functional.relu(loss_model.margin - close).pow(2).sum()
        total += 1
        odd += int((loss_model(a, b, labels) - pull - push).abs() > 1e-5)
    print(f"{odd} of {total} device batches with another set of hard pairs")
    print("fault shows:", "yes" if odd else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--eval_every", type=int, default=50)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    words = {w for o in OPENERS for w in o.split()} | {"a"}
    words |= {w for groups in ASPECTS.values() for g in groups for w in g}
    vocab = {w: i + 1 for i, w in enumerate(sorted(words))}
    train_set = QuestionPairs(3000, args.seed, vocab)
    dev_loader = DataLoader(QuestionPairs(800, 77, vocab), 128, collate_fn=collate)
    train_loader = DataLoader(
        train_set,
        args.batch_size,
        shuffle=True,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(args.seed),
    )
    loss_model = OnlineContrastiveLoss(Encoder(len(vocab) + 1))
    if args.fixed:
        loss_model.min_group = 1
    with tempfile.TemporaryDirectory() as tmp:
        best = train(
            loss_model, train_loader, dev_loader, args, os.path.join(tmp, "best.pt")
        )
    print(f"best dev AP {best:.4f}")
    if args.prove:
        prove(loss_model, train_loader)


if __name__ == "__main__":
    main()
