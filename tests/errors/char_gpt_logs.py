#!/usr/bin/env python3
"""Tiny decoder-only language model on server-log-like text (nanoGPT style, char level)."""

import argparse
import math
import random
import time

import torch
import torch.nn as nn
from torch.nn import functional as F

# ------------------------------------------------------------------ settings
block_size = 48
batch_size = 12
n_embd = 48
n_head = 4
n_layer = 2
dropout = 0.1
max_lr = 5e-3
min_lr = 5e-4
warmup_iters = 20
eval_interval = 40
eval_iters = 3

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=160)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(1337)
random.seed(1337)

# ------------------------------------------------------------------ data
hosts = ["alpha", "bravo", "delta", "gamma", "sigma"]
verbs = ["GET", "PUT", "POST", "HEAD"]
paths = ["/index", "/login", "/cart", "/api/v1/items", "/static/app.js"]
codes = ["200", "200", "200", "301", "404", "500"]


def log_line():
    return (
        f"{random.choice(hosts)}-{random.randint(1, 9)} {random.choice(verbs)} "
        f"{random.choice(paths)}?id={random.randint(0, 999)} {random.choice(codes)} "
        f"{random.randint(1, 300)}ms\n"
    )


text = "".join(log_line() for _ in range(2500))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
vocab_size = len(chars)
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
n_train = int(0.9 * len(data))
splits = {"train": data[:n_train], "val": data[n_train:]}


def get_batch(split):
    d = splits[split]
    ix = torch.randint(len(d) - block_size - 1, (batch_size,))
    x = torch.stack([d[i : i + block_size] for i in ix])
    y = torch.stack([d[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


# ------------------------------------------------------------------ model
class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)
        self.drop = nn.Dropout(dropout)
        diagonal = 2
        if args.fixed:
            diagonal = 1
        future = torch.triu(
            torch.ones(block_size, block_size, dtype=torch.bool), diagonal=diagonal
        )
        self.register_buffer("future", future, persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(n_embd, dim=2)
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in (q, k, v))
        att = q @ k.transpose(-2, -1) / math.sqrt(C // n_head)
        att = att.masked_fill(self.future[:T, :T], float("-inf"))
        att = self.drop(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.proj(y)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention()
        self.ln2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd),
            nn.GELU(),
            nn.Linear(4 * n_embd, n_embd),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        self.head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        logits = self.head(self.ln_f(self.blocks(x)))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))


model = GPT()
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
    lr=max_lr,
    betas=(0.9, 0.95),
)


def get_lr(it):
    if it < warmup_iters:
        return max_lr * (it + 1) / warmup_iters
    ratio = min(1.0, (it - warmup_iters) / max(1, args.steps - warmup_iters))
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (max_lr - min_lr)


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {}
    for split in splits:
        out[split] = (
            sum(model(*get_batch(split))[1].item() for _ in range(eval_iters))
            / eval_iters
        )
    model.train()
    return out


# ------------------------------------------------------------------ training
t0 = time.time()
for it in range(args.steps):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    xb, yb = get_batch("train")
    _, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (it + 1) % eval_interval == 0 or it + 1 == args.steps:
        l = estimate_loss()
        print(f"iter {it + 1}: train loss {l['train']:.4f}, val loss {l['val']:.4f}")

if args.prove:
    model.eval()
    with torch.no_grad():
        xb, _ = get_batch("val")
        other = xb.clone()
        other[:, 20:] = (other[:, 20:] + 7) % vocab_size
        a, b = model(xb)[0][:, :20], model(other)[0][:, :20]
    print("fault shows:", "yes" if (a - b).abs().max() > 1e-3 else "no")
