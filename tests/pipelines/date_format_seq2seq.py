"""Encoder-decoder transformer: '3 march 1987' -> '1987-03-03'.

Gradient accumulation over several micro batches, loss normalised by the number
of target tokens in the whole group.
"""
import argparse
import dataclasses
import datetime
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS = 0, 1, 2
CHARS = "abcdefghijklmnopqrstuvwxyz0123456789 ,-/"
STOI = {c: i + 3 for i, c in enumerate(CHARS)}
ITOS = {i: c for c, i in STOI.items()}
VOCAB = len(CHARS) + 3


@dataclasses.dataclass
class Config:
    steps: int = 160
    micro_batch: int = 24
    accum: int = 2
    d_model: int = 64
    heads: int = 4
    layers: int = 1
    dropout: float = 0.0
    peak_lr: float = 3e-3
    warmup: int = 30
    eval_every: int = 40
    seed: int = 7


def random_pair(rng):
    d = datetime.date(1950, 1, 1) + datetime.timedelta(days=rng.randrange(365 * 80))
    style = rng.randrange(3)
    month = d.strftime("%B").lower()
    if style == 0:
        src = f"{d.day} {month} {d.year}"
    elif style == 1:
        src = f"{month} {d.day}, {d.year}"
    else:
        src = f"{d.day:02d}/{d.month:02d}/{d.year}"
    return src, d.isoformat()


def build_splits(seed, n_train=6000, n_valid=200):
    rng = random.Random(seed)
    seen, pairs = set(), []
    while len(pairs) < n_train + n_valid:
        p = random_pair(rng)
        if p[1] not in seen:  # every date only once, in one style
            seen.add(p[1])
            pairs.append(p)
    return pairs[:n_train], pairs[n_train:]


def pad_batch(seqs):
    width = max(map(len, seqs))
    return torch.tensor([s + [PAD] * (width - len(s)) for s in seqs])


def collate(pairs):
    src = pad_batch([[STOI[c] for c in s] + [EOS] for s, _ in pairs])
    tgt = pad_batch([[BOS] + [STOI[c] for c in t] + [EOS] for _, t in pairs])
    return src, tgt


def endless_batches(pairs, size, seed):
    rng = random.Random(seed)
    order = list(range(len(pairs)))
    while True:
        rng.shuffle(order)
        for i in range(0, len(order) - size + 1, size):
            yield collate([pairs[j] for j in order[i : i + size]])


class Seq2Seq(nn.Module):
    def __init__(self, cfg, max_len=32):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, cfg.d_model, padding_idx=PAD)
        self.pos = nn.Embedding(max_len, cfg.d_model)
        self.core = nn.Transformer(
            cfg.d_model,
            cfg.heads,
            cfg.layers,
            cfg.layers,
            2 * cfg.d_model,
            cfg.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.head = nn.Linear(cfg.d_model, VOCAB)

    def embed(self, ids):
        return self.tok(ids) + self.pos(torch.arange(ids.size(1), device=ids.device))

    def forward(self, src, tgt_in):
        n = tgt_in.size(1)
        causal = torch.triu(torch.ones(n, n, dtype=torch.bool, device=src.device), 1)
        src_pad = src == PAD
        h = self.core(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=causal,
            src_key_padding_mask=src_pad,
            tgt_key_padding_mask=tgt_in == PAD,
            memory_key_padding_mask=src_pad,
        )
        return self.head(h)

    @torch.no_grad()
    def greedy(self, src, limit=12):
        out = torch.full((src.size(0), 1), BOS)
        for _ in range(limit):
            nxt = self(src, out)[:, -1].argmax(-1, keepdim=True)
            out = torch.cat([out, nxt], 1)
        return out[:, 1:]


def decode(ids):
    text = ""
    for i in ids.tolist():
        if i == EOS:
            break
        text += ITOS.get(i, "?")
    return text


def token_loss_sum(model, src, tgt):
    logits = model(src, tgt[:, :-1])
    return F.cross_entropy(
        logits.transpose(1, 2), tgt[:, 1:], ignore_index=PAD, reduction="sum"
    )


@torch.no_grad()
def validate(model, pairs):
    model.eval()
    loss, tokens, exact = 0.0, 0, 0
    for i in range(0, len(pairs), 100):
        chunk = pairs[i : i + 100]
        src, tgt = collate(chunk)
        loss += token_loss_sum(model, src, tgt).item()
        tokens += (tgt[:, 1:] != PAD).sum().item()
        exact += sum(decode(o) == t for o, (_, t) in zip(model.greedy(src), chunk))
    model.train()
    return loss / tokens, exact / len(pairs)


def main(cfg):
    torch.manual_seed(cfg.seed)
    train_pairs, valid_pairs = build_splits(cfg.seed)
    batches = endless_batches(train_pairs, cfg.micro_batch, cfg.seed)
    model = Seq2Seq(cfg)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    opt = torch.optim.AdamW(
        model.parameters(), lr=cfg.peak_lr, betas=(0.9, 0.98), weight_decay=0.01
    )

    def set_lr(step):
        # linear warm-up, then inverse square root
        scale = min(step / cfg.warmup, math.sqrt(cfg.warmup / step))
        for g in opt.param_groups:
            g["lr"] = cfg.peak_lr * scale
        return cfg.peak_lr * scale

    model.train()
    for step in range(1, cfg.steps + 1):
        lr = set_lr(step)
        group = [next(batches) for _ in range(cfg.accum)]
        n_tokens = sum((tgt[:, 1:] != PAD).sum().item() for _, tgt in group)
        opt.zero_grad()
        total = 0.0
        for src, tgt in group:
            loss = token_loss_sum(model, src, tgt) / n_tokens
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % cfg.eval_every == 0 or step == cfg.steps:
            vl, em = validate(model, valid_pairs)
            print(
                f"step {step}: train {total:.4f} valid {vl:.4f} exact {em:.2%} lr {lr:.2e}"
            )

    model.eval()
    for s, t in valid_pairs[:3]:
        print(
            f"{s!r:24} -> {decode(model.greedy(collate([(s, t)])[0])[0])}  (want {t})"
        )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    for f in dataclasses.fields(Config):
        ap.add_argument("--" + f.name.replace("_", "-"), type=f.type, default=f.default)
    main(Config(**vars(ap.parse_args())))
