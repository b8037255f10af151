#!/usr/bin/env python3
"""Sequence-to-sequence transformer with switch-style mixture-of-experts layers.

Toy "dialects": every source sentence starts with a dialect tag which says how it is
rewritten. Training state is saved regularly; `--resume FILE` continues from it.
"""
import argparse
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS, N_DIALECTS, N_WORDS = 0, 1, 2, 4, 12
FIRST_TAG, FIRST_WORD = 3, 7
VOCAB = FIRST_WORD + N_WORDS
MAX_WORDS = 6


def make_pairs(n, seed):
    gen = torch.Generator().manual_seed(seed)
    table = torch.Generator().manual_seed(0)
    substitution = torch.stack(
        [torch.randperm(N_WORDS, generator=table) for _ in range(N_DIALECTS)]
    )
    src = torch.full((n, MAX_WORDS + 2), PAD)
    tgt = torch.full((n, MAX_WORDS + 2), PAD)
    for i in range(n):
        d = int(torch.randint(N_DIALECTS, (), generator=gen))
        k = int(torch.randint(3, MAX_WORDS + 1, (), generator=gen))
        words = torch.randint(N_WORDS, (k,), generator=gen)
        out = substitution[d][words]
        out = out.flip(0) if d == 3 else out
        src[i, : k + 2] = torch.cat(
            [torch.tensor([FIRST_TAG + d]), words + FIRST_WORD, torch.tensor([EOS])]
        )
        tgt[i, : k + 2] = torch.cat(
            [torch.tensor([BOS]), out + FIRST_WORD, torch.tensor([EOS])]
        )
    return src, tgt


class SwitchFFN(nn.Module):
    """Top-1 routing without capacity limit; keeps the balance and z losses of the last call."""

    def __init__(self, dim, experts):
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
            for _ in range(experts)
        )
        self.aux = None

    def forward(self, x, real):
        shape = x.shape
        x, real = x.reshape(-1, shape[-1]), real.reshape(-1)
        logits = self.router(x)
        probs = logits.softmax(-1)
        gate, choice = probs.max(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = torch.nonzero((choice == e) & real).squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, gate[rows, None] * expert(x[rows]))
        fraction = F.one_hot(choice[real], len(self.experts)).float().mean(0)
        balance = len(self.experts) * (fraction * probs[real].mean(0)).sum()
        z = logits[real].logsumexp(-1).pow(2).mean()
        self.aux = 0.01 * balance + 0.001 * z
        return out.view(shape)


class Layer(nn.Module):
    def __init__(self, dim, heads, experts, cross):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.cross = (
            nn.MultiheadAttention(dim, heads, batch_first=True) if cross else None
        )
        self.n1, self.n2, self.n3 = (
            nn.LayerNorm(dim),
            nn.LayerNorm(dim) if cross else None,
            nn.LayerNorm(dim),
        )
        self.ffn = SwitchFFN(dim, experts)
        self.drop = nn.Dropout(0.05)

    def forward(self, x, pad, memory=None, memory_pad=None, causal=None):
        h = self.n1(x)
        x = x + self.drop(
            self.attn(
                h, h, h, key_padding_mask=pad, attn_mask=causal, need_weights=False
            )[0]
        )
        if self.cross is not None:
            h = self.n2(x)
            x = x + self.drop(
                self.cross(
                    h, memory, memory, key_padding_mask=memory_pad, need_weights=False
                )[0]
            )
        return x + self.drop(self.ffn(self.n3(x), ~pad))


class Translator(nn.Module):
    def __init__(self, dim=64, heads=4, experts=4):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Parameter(0.02 * torch.randn(MAX_WORDS + 2, dim))
        self.encoder = nn.ModuleList(
            Layer(dim, heads, experts, cross=False) for _ in range(1)
        )
        self.decoder = nn.ModuleList(
            Layer(dim, heads, experts, cross=True) for _ in range(1)
        )
        self.norm_enc, self.norm_dec = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.out = nn.Linear(dim, VOCAB)

    def encode(self, src):
        x = self.embed(src) + self.pos[: src.size(1)]
        for layer in self.encoder:
            x = layer(x, src == PAD)
        return self.norm_enc(x)

    def decode(self, tgt, memory, memory_pad):
        causal = torch.triu(torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool), 1)
        x = self.embed(tgt) + self.pos[: tgt.size(1)]
        for layer in self.decoder:
            x = layer(x, tgt == PAD, memory, memory_pad, causal)
        return self.out(self.norm_dec(x))

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src == PAD)

    def aux_loss(self):
        return sum(layer.ffn.aux for layer in [*self.encoder, *self.decoder])


def evaluate(model, src, tgt):
    model.eval()
    with torch.no_grad():
        logits = model(src, tgt[:, :-1])
        loss = F.cross_entropy(
            logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD
        ).item()
        memory = model.encode(src)
        hyp = torch.full((len(src), 1), BOS)
        for _ in range(MAX_WORDS + 1):
            last = model.decode(hyp, memory, src == PAD)[:, -1]
            last[:, [PAD, BOS]] = -float("inf")
            nxt = last.argmax(-1)
            hyp = torch.cat([hyp, nxt[:, None]], 1)
        real = tgt[:, 1:] != PAD
        right = ((hyp[:, 1:] == tgt[:, 1:])[real]).float().mean().item()
    return loss, right


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--save-every", type=int, default=100)
    p.add_argument(
        "--checkpoint",
        default=os.path.join(
            tempfile.gettempdir(), f"moe_translation_{os.getpid()}.pt"
        ),
    )
    p.add_argument("--resume")
    p.add_argument("--seed", type=int, default=31)
    return p.parse_args()


def make_data():
    src, tgt = make_pairs(4000, seed=1)
    val_src, val_tgt = make_pairs(300, seed=2)
    known = {tuple(row) for row in src.tolist()}
    fresh = torch.tensor(
        [tuple(row) not in known for row in val_src.tolist()]
    )  # short sentences can repeat
    return src, tgt, val_src[fresh], val_tgt[fresh]


def make_optimizer(model, warmup=40):
    decay = [q for q in model.parameters() if q.dim() >= 2]
    plain = [q for q in model.parameters() if q.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": 0.01},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=4e-3,
        betas=(0.9, 0.98),
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warmup, math.sqrt(warmup / (s + 1)))
    )
    return optimizer, scheduler


def save(path, model, optimizer, scheduler, step):
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "rng": torch.get_rng_state(),
            "step": step,
        },
        path,
    )


def restore(path, model, optimizer, scheduler):
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    torch.set_rng_state(state["rng"])
    return state["step"]


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    src, tgt, val_src, val_tgt = make_data()

    model = Translator()
    optimizer, scheduler = make_optimizer(model)
    start = 0
    if args.resume:
        start = restore(args.resume, model, optimizer, scheduler)

    for step in range(start + 1, args.steps + 1):
        model.train()
        idx = torch.randint(len(src), (args.batch,))
        s, t = src[idx], tgt[idx]
        logits = model(s, t[:, :-1])
        task = F.cross_entropy(
            logits.flatten(0, 1), t[:, 1:].flatten(), ignore_index=PAD
        )
        loss = task + model.aux_loss()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0 or step == args.steps:
            val_loss, right = evaluate(model, val_src, val_tgt)
            print(
                f"step {step:4d}  loss {task.item():.3f}  val {val_loss:.3f}  tokens right (greedy) {right:.3f}"
            )
        if step % args.save_every == 0:
            save(args.checkpoint, model, optimizer, scheduler, step)


if __name__ == "__main__":
    main()
