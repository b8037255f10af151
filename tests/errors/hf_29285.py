"""HF-29285: the angles of rotary positions are computed in bfloat16.

Source: huggingface/transformers#29285 (also #25681 and EleutherAI/gpt-neox#1003). The
product of positions and frequencies is a matrix product, which autocast runs in
bfloat16: positions beyond 256 fall together, and the angles are off by whole
radians. --fixed leaves autocast for the table.
"""

import argparse
import contextlib

import torch
from torch import nn
from torch.nn import functional as F


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, full_precision, base=10000.0):
        super().__init__()
        inv_freq = base ** (-torch.arange(0, dim, 2) / dim)
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.full_precision = full_precision

    def forward(self, position_ids):
        region = contextlib.nullcontext()
        if self.full_precision:
            region = torch.autocast("cpu", enabled=False)
        with region:
            freqs = position_ids[:, None].float() @ self.inv_freq[None, :]
        angles = torch.cat([freqs, freqs], dim=-1)
        return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Layer(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x, cos, sin):
        parts = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        q, k = (rotate(p, cos, sin).to(v.dtype) for p in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class TinyGemma(nn.Module):
    def __init__(self, full_precision, words=16, width=32):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.rotary = RotaryEmbedding(width // 2, full_precision)
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        cos, sin = self.rotary(torch.arange(ids.shape[1]))
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def texts(count=2, length=384, words=16):
    """Words that follow each other at a pace of the text, with some noise."""
    start = torch.randint(words, (count, 1))
    pace = torch.randint(1, 4, (count, 1))
    ids = (start + pace * torch.arange(length + 1)) % words
    noise = torch.randint(words, ids.shape)
    return torch.where(torch.rand(ids.shape) < 0.03, noise, ids)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=16)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = TinyGemma(full_precision=options.fixed)
    seen = []
    if options.prove:
        model.rotary.register_forward_hook(lambda *call: seen.append(call[2]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    for step in range(options.steps):
        ids = texts()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        cos = seen[-1][0].double()
        places = torch.arange(len(cos), dtype=torch.float64)
        exact = torch.outer(places, model.rotary.inv_freq.double()).cos()
        off = (cos[:, : exact.shape[1]] - exact).abs().max().item()
        print("fault shows:", "yes" if off > 0.1 else "no")


if __name__ == "__main__":
    main()
