#!/usr/bin/env python3
"""Continued pretraining of a small language model with LoRA adapters.

The base model is trained on one corpus, frozen, and adapted to a second corpus that
uses words the base has hardly seen. Adapters sit on the attention projections and on
the token embedding.
"""
from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCAB, CONTEXT = 64, 24


class Corpus:
    """First-order chain over a part of the vocabulary, with a skip dependency."""

    def __init__(self, words: range, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        n = len(words)
        self.words = torch.tensor(list(words))
        self.next = torch.stack([torch.randperm(n, generator=g)[:4] for _ in range(n)])
        self.g = torch.Generator().manual_seed(seed + 1000)

    def batch(self, size: int) -> Tensor:
        n = len(self.words)
        seq = [torch.randint(0, n, (size,), generator=self.g)]
        for t in range(CONTEXT):
            if t >= 2:
                pick = (seq[t - 2] + seq[t]) % 2
            else:
                pick = torch.zeros(size, dtype=torch.long)
            noise = torch.rand(size, generator=self.g) < 0.1
            pick = torch.where(
                noise, torch.randint(0, 4, (size,), generator=self.g), pick
            )
            seq.append(self.next[seq[t], pick])
        return self.words[torch.stack(seq, 1)]


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (
            p(x).view(b, t, self.heads, -1).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.self_attn = Attention(dim, 4)
        self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.n1(x))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class LM(nn.Module):
    def __init__(self, dim: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, dim)
        self.position = nn.Parameter(torch.randn(CONTEXT, dim) * 0.02)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids) + self.position[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))

    def loss(self, seq: Tensor) -> Tensor:
        return F.cross_entropy(self(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Linear, r: int, alpha: int) -> None:
        super().__init__()
        self.base_layer, self.scaling = base, alpha / r
        self.lora_A = nn.ModuleDict(
            {"default": nn.Linear(base.in_features, r, bias=False)}
        )
        self.lora_B = nn.ModuleDict(
            {"default": nn.Linear(r, base.out_features, bias=False)}
        )
        nn.init.zeros_(self.lora_B["default"].weight)

    def forward(self, x: Tensor) -> Tensor:
        return (
            self.base_layer(x)
            + self.lora_B["default"](self.lora_A["default"](x)) * self.scaling
        )


class LoraEmbedding(nn.Module):
    def __init__(self, base: nn.Embedding, r: int, alpha: int) -> None:
        super().__init__()
        self.base_layer, self.scaling = base, alpha / r
        self.lora_embedding_A = nn.ParameterDict(
            {"default": torch.zeros(base.num_embeddings, r)}
        )
        self.lora_embedding_B = nn.ParameterDict(
            {"default": torch.randn(r, base.embedding_dim)}
        )

    def forward(self, ids: Tensor) -> Tensor:
        low = F.embedding(ids, self.lora_embedding_A["default"])
        return (
            self.base_layer(ids) + low @ self.lora_embedding_B["default"] * self.scaling
        )


def get_peft_model(model: LM, targets: list[str], r: int, alpha: int) -> LM:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in targets:
                kind = LoraEmbedding if isinstance(child, nn.Embedding) else LoraLinear
                setattr(parent, name, kind(child, r, alpha))
    return model


def prepare_for_training(model: LM, fixed: bool) -> None:
    wanted = (".lora_A.", ".lora_B.", ".lora_magnitude_vector")
    if fixed:
        wanted += (".lora_embedding_A.", ".lora_embedding_B.")
    for name, p in model.named_parameters():
        p.requires_grad_(any(w in name for w in wanted))


def fit(model: LM, corpus: Corpus, steps: int, batch: int, lr: float, tag: str) -> None:
    params = [p for p in model.parameters() if p.requires_grad]
    print(f"[{tag}] {sum(p.numel() for p in params)} trainable parameters")
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=steps)
    for step in range(steps):
        loss = model.loss(corpus.batch(batch))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 30 == 0 or step == steps - 1:
            print(f"[{tag}] step {step:4d} loss {loss.item():.4f}")


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120, help="adaptation steps")
    ap.add_argument("--base-steps", type=int, default=80)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--rank", type=int, default=8)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    began = time.time()
    model = LM()
    fit(model, Corpus(range(0, 40), 1), args.base_steps, args.batch, 4e-3, "base")

    target_modules = ["q_proj", "k_proj", "v_proj", "o_proj", "embed_tokens"]
    model = get_peft_model(model, target_modules, args.rank, alpha=2 * args.rank)
    prepare_for_training(model, args.fixed)
    start = {n: p.detach().clone() for n, p in model.named_parameters() if "lora_" in n}
    fit(model, Corpus(range(32, 64), 2), args.steps, args.batch, 6e-3, "lora")

    held_out = Corpus(range(32, 64), 2)
    held_out.g.manual_seed(31337)
    with torch.no_grad():
        print(
            f"held-out loss {model.loss(held_out.batch(200)).item():.4f} ({time.time() - began:.1f}s)"
        )
    if args.prove:
        still = [
            n
            for n, p in model.named_parameters()
            if n in start and torch.equal(p, start[n])
        ]
        print(
            f"adapter tensors that never moved: {len(still)} of {len(start)}",
            *still,
            sep="\n  ",
        )
        print("fault shows:", "yes" if still else "no")


if __name__ == "__main__":
    main()
