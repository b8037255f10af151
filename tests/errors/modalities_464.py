"""Trains a small causal language model with automatic mixed precision.

Weight decay for matrices only, a warm-up and a cosine, evaluation on texts held out.
After Modalities, issue 464.
"""

import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH = 64, 32


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        hidden = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(hidden)))


class CLMCrossEntropyLoss:
    def __init__(self, upcast):
        self.upcast = upcast
        self.loss_fun = nn.CrossEntropyLoss(reduction="mean")

    def __call__(self, logits, labels):
        if self.upcast:
            logits = logits.float()
        shifted = logits[:, :-1].reshape(-1, logits.shape[-1])
        return self.loss_fun(shifted, labels[:, 1:].reshape(-1))


def texts(count, seed):
    """Each word has three usual followers."""
    rules = torch.Generator().manual_seed(7)
    after = torch.randint(VOCABULARY, (VOCABULARY, 3), generator=rules)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)
    for place in range(1, LENGTH):
        pick = torch.randint(3, (count,), generator=generator)
        usual = torch.rand(count, generator=generator) < 0.9
        ids[:, place] = torch.where(
            usual, after[ids[:, place - 1], pick], ids[:, place]
        )
    return TensorDataset(ids)


def make_optimizer(model, args):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))


def forward(model, ids):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(ids)


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    losses = [criterion(forward(model, ids), ids).float() for (ids,) in loader]
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    loader = DataLoader(texts(960, args.seed), batch_size=32, shuffle=True)
    valid = DataLoader(texts(128, args.seed + 1), batch_size=64)
    model, criterion = LanguageModel(), CLMCrossEntropyLoss(upcast=args.fixed)
    optimizer = make_optimizer(model, args)
    total, warmup = args.epochs * len(loader), 10
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min((s + 1) / warmup, 0.5 * (1 + math.cos(math.pi * s / total))),
    )
    step, gap = 0, 0.0
    for epoch in range(args.epochs):
        model.train()
        for (ids,) in loader:
            logits = forward(model, ids)
            loss = criterion(logits, ids)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            if args.prove:
                exact = F.cross_entropy(
                    logits[:, :-1].double().flatten(0, 1), ids[:, 1:].flatten()
                )
                gap = max(gap, abs(exact.item() - loss.item()))
        print(f"epoch {epoch} validation {evaluate(model, valid, criterion):.4f}")
    if args.prove:
        print(f"the loss is off that of the same logits by up to {gap:.6f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
