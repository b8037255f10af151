import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 32
    width: int = 48
    heads: int = 4
    layers: int = 2
    pack_tokens: int = 96
    micro_batches: int = 4
    attn_impl: str = "sdpa"
    lr: float = 4e-3
    warmup: int = 10


def documents(n, vocab, seed):
    """Repetitions of a short random motif, cut at a random length."""
    g = torch.Generator().manual_seed(seed)
    docs = []
    for _ in range(n):
        period = int(torch.randint(3, 7, (1,), generator=g))
        length = int(torch.randint(8, 24, (1,), generator=g))
        motif = torch.randint(4, vocab, (period,), generator=g)
        body = motif.repeat(length // period + 1)[:length]
        docs.append(torch.cat([torch.tensor([1]), body]))
    return docs


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.impl = cfg.attn_impl
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width, bias=False)
        self.out = nn.Linear(cfg.width, cfg.width, bias=False)

    @staticmethod
    def rotate(x, pos):
        half = x.size(-1) // 2
        freq = 100.0 ** (-torch.arange(half) / half)
        ang = pos[:, None, :, None] * freq
        a, b = x[..., :half], x[..., half:]
        return torch.cat(
            [a * ang.cos() - b * ang.sin(), b * ang.cos() + a * ang.sin()], -1
        )

    def forward(self, x, pos, attention_mask=None, cu_seqlens=None):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = self.rotate(q, pos), self.rotate(k, pos)
        if self.impl == "varlen" and cu_seqlens is not None:
            bounds = cu_seqlens.tolist()
            o = torch.cat(
                [
                    F.scaled_dot_product_attention(
                        q[:, :, s:e], k[:, :, s:e], v[:, :, s:e], is_causal=True
                    )
                    for s, e in zip(bounds, bounds[1:])
                ],
                2,
            )
        elif attention_mask is not None:
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask)
        else:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(o.transpose(1, 2).reshape(b, t, d))


class LM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.emb = nn.Embedding(cfg.vocab, w)
        self.attn = nn.ModuleList(Attention(cfg) for _ in range(cfg.layers))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(w, 3 * w), nn.SiLU(), nn.Linear(3 * w, w))
            for _ in range(cfg.layers)
        )
        self.n1 = nn.ModuleList(nn.RMSNorm(w) for _ in range(cfg.layers))
        self.n2 = nn.ModuleList(nn.RMSNorm(w) for _ in range(cfg.layers))
        self.norm, self.head = nn.RMSNorm(w), nn.Linear(w, cfg.vocab, bias=False)

    def forward(self, ids, pos, **attn_kwargs):
        x = self.emb(ids)
        for a, m, n1, n2 in zip(self.attn, self.mlp, self.n1, self.n2):
            x = x + a(n1(x), pos, **attn_kwargs)
            x = x + m(n2(x))
        return self.head(self.norm(x))


def pack(docs, budget):
    """First-fit packing; every pack is (ids, positions, cu_seqlens)."""
    bins = []
    for d in docs:
        for b in bins:
            if sum(map(len, b)) + len(d) <= budget:
                b.append(d)
                break
        else:
            bins.append([d])
    packs = []
    for b in bins:
        cu = torch.tensor([0] + [len(d) for d in b]).cumsum(0)
        packs.append(
            (torch.cat(b)[None], torch.cat([torch.arange(len(d)) for d in b])[None], cu)
        )
    return packs


def next_token_logp(logits, ids, cu):
    """Log-probabilities of ids[1:] given what precedes; the first token of each document is not scored."""
    logp = F.log_softmax(logits[0, :-1], -1).gather(1, ids[0, 1:, None]).squeeze(1)
    scored = torch.ones(ids.size(1) - 1, dtype=torch.bool)
    scored[cu[1:-1] - 1] = False
    return logp[scored]


class Engine:
    def __init__(self, cfg, model, fixed):
        self.cfg, self.model, self.fixed = cfg, model, fixed

    def forward_packed(self, mb):
        ids, pos, cu = mb
        kwargs = dict(cu_seqlens=cu, attention_mask=None)
        if self.fixed and self.cfg.attn_impl != "varlen":
            doc = torch.bucketize(torch.arange(ids.size(1)), cu[1:], right=True)
            same = doc[:, None] == doc[None, :]
            kwargs["attention_mask"] = (same & torch.ones_like(same).tril())[None, None]
        return next_token_logp(self.model(ids, pos, **kwargs), ids, cu)

    def forward_single(self, doc):
        ids = doc[None]
        return next_token_logp(
            self.model(ids, torch.arange(len(doc))[None]),
            ids,
            torch.tensor([0, len(doc)]),
        )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=70)
    ap.add_argument("--attn-impl", choices=["sdpa", "varlen"], default="sdpa")
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    cfg = Config(attn_impl=args.attn_impl)
    torch.manual_seed(31)

    train = pack(documents(1200, cfg.vocab, 1), cfg.pack_tokens)
    test = documents(60, cfg.vocab, 2)
    model = LM(cfg)
    engine = Engine(cfg, model, args.fixed)
    opt = torch.optim.AdamW(
        model.parameters(), lr=cfg.lr, betas=(0.9, 0.98), weight_decay=0.01
    )
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min(1.0, (s + 1) / cfg.warmup)
        * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * s / args.steps))),
    )
    g = torch.Generator().manual_seed(3)
    worst = 0.0

    for step in range(args.steps):
        picks = torch.randint(0, len(train), (cfg.micro_batches,), generator=g).tolist()
        logps = [engine.forward_packed(train[i]) for i in picks]
        total = sum(len(l) for l in logps)
        loss = -sum(l.sum() for l in logps) / total
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if args.prove and step % 10 == 0:
            ids, _, cu = train[picks[0]]
            with torch.no_grad():
                alone = torch.cat(
                    [
                        engine.forward_single(ids[0, s:e])
                        for s, e in zip(cu.tolist(), cu.tolist()[1:])
                    ]
                )
            worst = max(worst, (alone - logps[0].detach()).abs().max().item())
        opt.step()
        sched.step()
        if step % 15 == 0 or step == args.steps - 1:
            print(
                f"step {step:3d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e} tokens {total}"
            )

    with torch.no_grad():
        nll = -torch.cat([engine.forward_single(d) for d in test]).mean()
    print(f"test nll per token, one document at a time: {nll.item():.4f}")
    if args.prove:
        print(
            f"largest difference of a token's log-probability, packed vs alone: {worst:.5f}"
        )
        print("fault shows:", "yes" if worst > 1e-3 else "no")


if __name__ == "__main__":
    main()
