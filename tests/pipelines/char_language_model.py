# Tiny GPT-like character model. bf16 autocast, gradient accumulation, tied embeddings.
# Data: sentences out of a little made-up grammar.
import argparse
import functools
import math
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class Config:
    block_size: int = 48
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.1
    batch_size: int = 12
    grad_accum: int = 2
    lr: float = 3e-3
    min_lr: float = 3e-4
    warmup: int = 10
    weight_decay: float = 0.1
    grad_clip: float = 1.0
    eval_every: int = 30
    eval_batches: int = 8


# ---------------------------------------------------------------- data
SUBJ = ["cat", "dog", "aunt", "man", "robot", "teacher", "sailor", "child"]
ADJ = ["old", "young", "quiet", "tired", "clever", "tall", "happy", "busy", "lost"]
VERB = ["sees", "likes", "paints", "follows", "forgets", "sells", "finds", "draws"]
OBJ = [
    "the river",
    "a stone",
    "seven apples",
    "the moon",
    "a small house",
    "two birds",
    "the bridge",
    "a letter",
    "some bread",
    "the clock",
]
END = [
    "today",
    "every night",
    "without a word",
    "in the garden",
    "at noon",
    "once more",
]


def make_text(n, rng):
    out = []
    for _ in range(n):
        s = f"the {rng.choice(ADJ)} {rng.choice(SUBJ)} {rng.choice(VERB)} {rng.choice(OBJ)}"
        if rng.random() < 0.7:
            s += " " + rng.choice(END)
        out.append(s + ".\n")
    return "".join(out)


# ---------------------------------------------------------------- model
class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n_head = c.n_head
        self.dropout = c.dropout
        self.qkv = nn.Linear(c.n_embd, 3 * c.n_embd)
        self.proj = nn.Linear(c.n_embd, c.n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (
            t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for t in (q, k, v)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(c.n_embd), nn.LayerNorm(c.n_embd)
        self.attn = Attention(c)
        self.mlp = nn.Sequential(
            nn.Linear(c.n_embd, 4 * c.n_embd),
            nn.GELU(),
            nn.Linear(4 * c.n_embd, c.n_embd),
            nn.Dropout(c.dropout),
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab, c):
        super().__init__()
        self.c = c
        self.wte = nn.Embedding(vocab, c.n_embd)
        self.wpe = nn.Embedding(c.block_size, c.n_embd)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.n_layer))
        self.ln_f = nn.LayerNorm(c.n_embd)
        self.lm_head = nn.Linear(c.n_embd, vocab, bias=False)
        self.apply(self._init)
        self.lm_head.weight = self.wte.weight

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for b in self.blocks:
            x = b(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        return logits, loss

    @torch.no_grad()
    def generate(self, idx, n, gen):
        for _ in range(n):
            logits, _ = self(idx[:, -self.c.block_size :])
            p = torch.softmax(logits[:, -1].float() / 0.8, dim=-1)
            idx = torch.cat([idx, torch.multinomial(p, 1, generator=gen)], dim=1)
        return idx


def make_optimizer(model, c):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": c.weight_decay},
            {"params": rest, "weight_decay": 0.0},
        ],
        lr=c.lr,
        betas=(0.9, 0.95),
    )


def print_sample(model, chars, stoi):
    model.eval()
    start = torch.tensor([[stoi["\n"]]])
    text = model.generate(start, 60, torch.Generator().manual_seed(0))[0].tolist()
    print("sample:", repr("".join(chars[i] for i in text)))


def get_lr(it, steps, c):
    if it < c.warmup:
        return c.lr * (it + 1) / c.warmup
    r = min(1.0, (it - c.warmup) / max(1, steps - c.warmup))
    return c.min_lr + 0.5 * (1 + math.cos(math.pi * r)) * (c.lr - c.min_lr)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fp32", action="store_true")
    return parser.parse_args()


def make_data(rng):
    train_text, val_text = make_text(3000, rng), make_text(300, rng)
    chars = sorted(set(train_text))
    stoi = {ch: i for i, ch in enumerate(chars)}
    data = {
        k: torch.tensor([stoi[ch] for ch in t])
        for k, t in (("train", train_text), ("val", val_text))
    }
    return chars, stoi, data


def main():
    args = parse_args()
    c = Config()
    torch.manual_seed(1337)
    rng = np.random.default_rng(1337)

    chars, stoi, data = make_data(rng)

    def get_batch(split, generator=None):
        d = data[split]
        ix = torch.randint(
            len(d) - c.block_size - 1, (c.batch_size,), generator=generator
        )
        x = torch.stack([d[i : i + c.block_size] for i in ix])
        y = torch.stack([d[i + 1 : i + 1 + c.block_size] for i in ix])
        return x, y

    model = GPT(len(chars), c)
    n_params = sum(p.numel() for p in model.parameters())
    print(f"{len(chars)} characters, {n_params / 1e3:.1f}k parameters")

    opt = make_optimizer(model, c)
    autocast = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    ctx = nullcontext if args.fp32 else autocast

    @torch.no_grad()
    def estimate_loss():
        model.eval()
        out = {}
        for split in ("train", "val"):
            g = torch.Generator().manual_seed(5)  # same batches each time
            losses = torch.zeros(c.eval_batches)
            for k in range(c.eval_batches):
                x, y = get_batch(split, g)
                with ctx():
                    losses[k] = model(x, y)[1].item()
            out[split] = losses.mean().item()
        model.train()
        return out

    model.train()
    for it in range(args.steps + 1):
        if it % c.eval_every == 0 or it == args.steps:
            e = estimate_loss()
            print(f"iter {it}: train {e['train']:.3f}  val {e['val']:.3f}")
        if it == args.steps:
            break
        for g in opt.param_groups:
            g["lr"] = get_lr(it, args.steps, c)
        for _ in range(c.grad_accum):
            x, y = get_batch("train")
            with ctx():
                _, loss = model(x, y)
                loss = loss / c.grad_accum
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), c.grad_clip)
        opt.step()
        opt.zero_grad(set_to_none=True)

    print_sample(model, chars, stoi)


if __name__ == "__main__":
    main()
