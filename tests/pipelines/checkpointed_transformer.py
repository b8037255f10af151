"""A causal transformer language model over bracket expressions. Every block is run
under activation checkpointing while training; the learning rate starts at zero,
warms up linearly and goes down to zero along a cosine.

    python checkpointed_transformer.py --steps 60
"""

import argparse
import math
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

VOCAB = {symbol: number for number, symbol in enumerate("_()[]{}ab")}
PAIRS = {"(": ")", "[": "]", "{": "}"}


def expression(length, rng):
    """A random well-nested expression, cut at the length."""
    text, stack = [], []
    while len(text) < length:
        roll = rng.random()
        if roll < 0.35 and len(stack) < 5:
            opening = rng.choice("([{")
            stack.append(PAIRS[opening])
            text.append(opening)
        elif roll < 0.75 and stack:
            text.append(stack.pop())
        else:
            text.append("ab"[len(stack) % 2])
    return [VOCAB[symbol] for symbol in text]


class Attention(nn.Module):
    def __init__(self, d, heads, drop):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.to_qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.to_qkv(x).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        p = self.drop if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d, heads, drop):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(d), Attention(d, heads, drop)
        self.ln2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(
            nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(drop)
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Decoder(nn.Module):
    def __init__(self, d=64, heads=4, depth=3, context=48, drop=0.05):
        super().__init__()
        self.token = nn.Embedding(len(VOCAB), d)
        self.position = nn.Parameter(torch.randn(context, d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, heads, drop) for _ in range(depth))
        self.final = nn.LayerNorm(d)
        self.logits = nn.Linear(d, len(VOCAB), bias=False)
        self.grad_checkpointing = False

    def forward(self, idx):
        x = self.token(idx) + self.position[: idx.shape[1]]
        for block in self.blocks:
            if self.grad_checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.logits(self.final(x))


def schedule(warmup, total):
    def factor(step):
        if step < warmup:
            return step / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))

    return factor


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--batch-size", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(99)
    rng = random.Random(99)

    def batch(n):
        ids = torch.tensor([expression(49, rng) for _ in range(n)])
        return ids[:, :-1], ids[:, 1:]

    def loss_of(inputs, targets):
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    model = Decoder()
    model.grad_checkpointing = True
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, schedule(min(args.warmup, max(1, args.steps // 2)), args.steps)
    )
    held_out = batch(32)
    for step in range(args.steps):
        model.train()
        lr = scheduler.get_last_lr()[0]
        loss = loss_of(*batch(args.batch_size))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        if step % 10 == 0 or step == args.steps - 1:
            model.eval()
            with torch.no_grad():
                held = loss_of(*held_out).item()
            print(
                f"it {step} lr {lr:.2e} loss {loss.item():.6f} held out {held:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
