"""Sentiment of short product reviews with a two-layer attention encoder.

Tokens are made up: a few hundred neutral words, some positive, some negative, and a
negation word which flips what comes next.
"""
import argparse
import math
import time

import torch
from torch import nn, Tensor

PAD, NOT = 0, 1
N_NEUTRAL, N_POLAR = 200, 30
VOCAB = 2 + N_NEUTRAL + 2 * N_POLAR
MAX_LEN = 24


def make_reviews(count: int, gen: torch.Generator) -> tuple[list[list[int]], list[int]]:
    texts, labels = [], []
    for _ in range(count):
        n = int(torch.randint(6, 20, (1,), generator=gen))
        label = int(torch.randint(0, 2, (1,), generator=gen))
        words = (torch.randint(0, N_NEUTRAL, (n,), generator=gen) + 2).tolist()
        for spot in torch.randperm(n - 1, generator=gen)[:3].tolist():
            negated = float(torch.rand(1, generator=gen)) < 0.12
            polarity = label ^ int(negated)
            words[spot] = (
                2
                + N_NEUTRAL
                + polarity * N_POLAR
                + int(torch.randint(0, N_POLAR, (1,), generator=gen))
            )
            if negated and spot > 0 and words[spot - 1] < 2 + N_NEUTRAL:
                words[spot - 1] = NOT
        texts.append(words)
        labels.append(label)
    return texts, labels


def collate(texts, labels) -> tuple[Tensor, Tensor]:
    ids = torch.full((len(texts), MAX_LEN), PAD)
    for row, words in enumerate(texts):
        ids[row, : len(words)] = torch.tensor(words)
    return ids, torch.tensor(labels)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=0.1, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.ff = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = self.norm1(x)
        h, _ = self.attn(h, h, h, key_padding_mask=mask, need_weights=False)
        x = x + h
        return x + self.ff(self.norm2(x))


class ReviewEncoder(nn.Module):
    def __init__(self, args, dim: int = 48, heads: int = 4, layers: int = 2):
        super().__init__()
        self.args = args
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(MAX_LEN, dim))
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.out = nn.Linear(dim, 2)

    def forward(self, ids: Tensor) -> Tensor:
        real = ids != PAD
        if self.args.fixed:
            mask = ~real
        else:
            mask = real
        x = self.tok(ids) * math.sqrt(self.tok.embedding_dim) * 0.2 + self.pos
        for block in self.blocks:
            x = block(x, mask)
        weight = real.unsqueeze(-1).float()
        pooled = (x * weight).sum(1) / weight.sum(1)
        return self.out(pooled)


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(64)
    gen = torch.Generator().manual_seed(64)
    train_texts, train_labels = make_reviews(2500, gen)
    dev_ids, dev_labels = collate(*make_reviews(400, gen))

    model = ReviewEncoder(args)
    opt = torch.optim.AdamW(
        model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01
    )
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / 30, 0.5 * (1 + math.cos(math.pi * s / args.steps)))
    )
    ce = nn.CrossEntropyLoss()

    started, step = time.time(), 0
    while step < args.steps:
        order = torch.randperm(len(train_texts), generator=gen).tolist()
        for at in range(0, len(order) - 31, 32):
            chosen = order[at : at + 32]
            ids, labels = collate(
                [train_texts[i] for i in chosen], [train_labels[i] for i in chosen]
            )
            model.train()
            loss = ce(model(ids), labels)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            step += 1
            if step % 50 == 0 or step == args.steps:
                model.eval()
                with torch.no_grad():
                    acc = (
                        (model(dev_ids).argmax(-1) == dev_labels).float().mean().item()
                    )
                print(f"{step:4d}: loss {loss.item():.3f}, dev accuracy {acc:.3f}")
            if step >= args.steps:
                break
    print(f"done in {time.time() - started:.1f}s")

    if args.prove:
        model.eval()
        with torch.no_grad():
            before = model(dev_ids)
            model.tok.weight[PAD] += torch.randn(model.tok.embedding_dim)
            after = model(dev_ids)
        change = (after - before).abs().max().item()
        print(
            f"largest change of a score when the padding vector changes: {change:.6f}"
        )
        print("fault shows:", "yes" if change > 1e-4 else "no")


if __name__ == "__main__":
    main()
