"""nano-GPT style character model on generated cooking recipes.

bf16 autocast, gradient accumulation, hand written lr schedule.
"""
import argparse
import math
import random
import time
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 48
    vocab_size: int = 64
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.1


class CausalSelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.qkv = nn.Linear(cfg.n_embd, 3 * cfg.n_embd, bias=False)
        self.proj = nn.Linear(cfg.n_embd, cfg.n_embd, bias=False)
        self.n_head = cfg.n_head
        self.dropout = cfg.dropout

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
    def __init__(self, cfg):
        super().__init__()
        self.ln1 = nn.LayerNorm(cfg.n_embd)
        self.attn = CausalSelfAttention(cfg)
        self.ln2 = nn.LayerNorm(cfg.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.n_embd, 4 * cfg.n_embd),
            nn.GELU(),
            nn.Linear(4 * cfg.n_embd, cfg.n_embd),
        )
        self.drop = nn.Dropout(cfg.dropout)

    def forward(self, x):
        x = x + self.drop(self.attn(self.ln1(x)))
        return x + self.drop(self.mlp(self.ln2(x)))


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.drop = nn.Dropout(cfg.dropout)
        self.blocks = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layer)])
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.apply(self._init)
        self.head.weight = self.wte.weight  # weight tying

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
            if getattr(m, "bias", None) is not None:
                nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        pos = torch.arange(idx.size(1), device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(
            logits.float().view(-1, logits.size(-1)), targets.view(-1)
        )

    @torch.no_grad()
    def generate(self, idx, n):
        for _ in range(n):
            logits, _ = self(idx[:, -self.cfg.block_size :])
            probs = F.softmax(logits[:, -1].float() / 0.8, dim=-1)
            idx = torch.cat([idx, torch.multinomial(probs, 1)], dim=1)
        return idx


def write_corpus(seed, n_recipes):
    r = random.Random(seed)
    verbs = ["chop", "boil", "fry", "mix", "roast", "peel"]
    foods = ["onions", "rice", "beans", "carrots", "eggs", "leeks", "apples"]
    ends = ["until soft", "for ten minutes", "with some butter", "in a large pan"]
    out = []
    for _ in range(n_recipes):
        steps = [
            f"{r.choice(verbs)} the {r.choice(foods)} {r.choice(ends)}."
            for _ in range(r.randint(2, 5))
        ]
        out.append(" ".join(steps))
    return "\n".join(out) + "\n"


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--micro_batch", type=int, default=12)
    ap.add_argument("--grad_accum", type=int, default=3)
    ap.add_argument("--eval_interval", type=int, default=30)
    ap.add_argument("--no_amp", action="store_true")
    return ap.parse_args()


@torch.no_grad()
def estimate_loss(model, get_batch, ctx, iters=8):
    model.eval()
    res = {}
    for split in ("train", "val"):
        g = torch.Generator().manual_seed(0)  # same windows at each evaluation
        losses = torch.zeros(iters)
        for k in range(iters):
            with ctx:
                _, loss = model(*get_batch(split, g))
            losses[k] = loss.item()
        res[split] = losses.mean().item()
    model.train()
    return res


def get_lr(it, steps, warmup=15, lr=3e-3, min_lr=3e-4):
    if it < warmup:
        return lr * (it + 1) / (warmup + 1)
    ratio = min(1.0, (it - warmup) / max(1, steps - warmup))
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (lr - min_lr)


def make_optimizer(model):
    params = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(
        [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=3e-3,
        betas=(0.9, 0.95),
    )


def main():
    args = parse_args()
    torch.manual_seed(1337)

    text = write_corpus(7, 500)
    cut = text.rfind("\n", 0, int(0.9 * len(text))) + 1
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    encode = lambda s: torch.tensor([stoi[c] for c in s], dtype=torch.long)
    data = {"train": encode(text[:cut]), "val": encode(text[cut:])}

    cfg = GPTConfig(vocab_size=len(chars))
    model = GPT(cfg)
    print(
        f"{sum(p.numel() for p in model.parameters()) / 1e3:.1f}k parameters, vocab {len(chars)}"
    )
    ctx = nullcontext() if args.no_amp else torch.autocast("cpu", dtype=torch.bfloat16)

    def get_batch(split, generator=None):
        d = data[split]
        ix = torch.randint(
            len(d) - cfg.block_size, (args.micro_batch,), generator=generator
        )
        x = torch.stack([d[i : i + cfg.block_size] for i in ix])
        y = torch.stack([d[i + 1 : i + 1 + cfg.block_size] for i in ix])
        return x, y

    optimizer = make_optimizer(model)
    t0 = time.time()
    X, Y = get_batch("train")
    for it in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it, args.steps)
        if it % args.eval_interval == 0:
            e = estimate_loss(model, get_batch, ctx)
            print(f"step {it}: train {e['train']:.4f} val {e['val']:.4f}")
        total = 0.0
        for _ in range(args.grad_accum):
            with ctx:
                _, loss = model(X, Y)
                loss = loss / args.grad_accum
            X, Y = get_batch("train")  # prefetch next one
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if it % 20 == 0:
            print(
                f"iter {it}: loss {total:.4f} grad norm {norm:.2f} {time.time() - t0:.1f}s"
            )

    e = estimate_loss(model, get_batch, ctx)
    print(f"final: train {e['train']:.4f} val {e['val']:.4f}")
    model.eval()
    sample = model.generate(encode("chop ")[None], 60)[0].tolist()
    print("".join(chars[i] for i in sample))


if __name__ == "__main__":
    main()
