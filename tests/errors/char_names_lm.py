# minimal GPT on made-up town names, one file
import argparse
import math
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 24
    vocab_size: int = 0
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 48
    dropout: float = 0.0


class SelfAttention(nn.Module):
    def __init__(self, config, opt):
        super().__init__()
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.causal = False
        if opt.fixed:
            self.causal = True

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (
            t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for t in (q, k, v)
        )
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
        )
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config, opt):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = SelfAttention(config, opt)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd),
            nn.GELU(),
            nn.Linear(4 * config.n_embd, config.n_embd),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config, opt):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config, opt) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(self._init)
        self.wte.weight = self.lm_head.weight

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.05)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        pos = torch.arange(idx.size(1))
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.reshape(-1)
        )

    @torch.no_grad()
    def generate(self, idx, n, gen):
        for _ in range(n):
            logits, _ = self(idx[:, -self.config.block_size :])
            p = F.softmax(logits[:, -1], dim=-1)
            idx = torch.cat([idx, torch.multinomial(p, 1, generator=gen)], 1)
        return idx


def town_corpus(n, seed):
    r = random.Random(seed)
    front = [
        "ash",
        "brook",
        "clay",
        "dun",
        "elm",
        "fair",
        "green",
        "hazel",
        "kings",
        "lang",
        "mill",
        "nor",
        "oak",
        "red",
    ]
    mid = ["", "", "ing", "er", "en"]
    back = [
        "ton",
        "ham",
        "ford",
        "wick",
        "bury",
        "field",
        "ley",
        "well",
        "stead",
        "port",
    ]
    return (
        "\n".join(r.choice(front) + r.choice(mid) + r.choice(back) for _ in range(n))
        + "\n"
    )


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=260)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    return ap.parse_args()


def main():
    opt = parse_args()
    torch.manual_seed(2718)
    text, held_out = town_corpus(2500, 1), town_corpus(300, 2)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    encode = lambda s: torch.tensor([stoi[c] for c in s])
    train_ids, val_ids = encode(text), encode(held_out)

    config = GPTConfig(vocab_size=len(chars))
    model = GPT(config, opt)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=3e-3,
        betas=(0.9, 0.95),
    )

    def get_batch(ids):
        ix = torch.randint(len(ids) - config.block_size - 1, (opt.batch,))
        x = torch.stack([ids[i : i + config.block_size] for i in ix])
        y = torch.stack([ids[i + 1 : i + config.block_size + 1] for i in ix])
        return x, y

    for it in range(opt.steps):
        lr = (
            3e-3
            * min(1.0, (it + 1) / 10)
            * (0.55 + 0.45 * math.cos(math.pi * it / opt.steps))
        )
        for g in optimizer.param_groups:
            g["lr"] = lr
        _, loss = model(*get_batch(train_ids))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if it % 20 == 0 or it == opt.steps - 1:
            model.eval()
            with torch.no_grad():
                val = sum(model(*get_batch(val_ids))[1].item() for _ in range(4)) / 4
            model.train()
            print(
                f"iter {it}: train loss {loss.item():.4f}, val loss {val:.4f}, lr {lr:.2e}"
            )

    model.eval()
    out = model.generate(encode("\n")[None], 40, torch.Generator().manual_seed(0))
    print("sample:", " ".join("".join(chars[i] for i in out[0].tolist()).split()))
    if opt.prove:
        with torch.no_grad():
            x = val_ids[: config.block_size][None]
            other = x.clone()
            other[0, 12:] = x[0, 12:].flip(0).add(1) % len(chars)
            moved = (model(x)[0][0, :12] - model(other)[0][0, :12]).abs().max().item()
        print(
            f"# change of the first 12 positions' logits when later letters change: {moved:.5f}"
        )
        print("fault shows:", "yes" if moved > 1e-4 else "no")


if __name__ == "__main__":
    main()
