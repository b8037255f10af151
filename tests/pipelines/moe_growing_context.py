"""Mixture-of-experts decoder on melodies; the context grows while the batch shrinks.

Top-2 router with a load-balancing and a z-loss, loss weighted by tokens over accumulated
micro-batches, inverse-square-root schedule with warm-up.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

NOTES = 24


class Experts(nn.Module):
    def __init__(self, dim, hidden, count=4, k=2):
        super().__init__()
        self.count, self.k = count, k
        self.router = nn.Linear(dim, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim))
            for _ in range(count)
        )

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        logits = self.router(flat)
        probs = logits.softmax(-1)
        weight, chosen = probs.topk(self.k, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            rows, slot = (chosen == e).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(
                    0, rows, expert(flat[rows]) * weight[rows, slot, None]
                )
        share = F.one_hot(chosen, self.count).float().sum(1).mean(0) / self.k
        balance = self.count * (share * probs.mean(0)).sum()
        z = logits.logsumexp(-1).pow(2).mean()
        return out.view_as(x), balance, z


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True, bias=False)
        self.moe = Experts(dim, 2 * dim)

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        y, balance, z = self.moe(self.norm2(x))
        return x + y, balance, z


class Composer(nn.Module):
    def __init__(self, dim=48, heads=4, layers=2, longest=64):
        super().__init__()
        self.embed = nn.Embedding(NOTES, dim)
        self.place = nn.Parameter(torch.randn(longest, dim) * 0.02)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, NOTES)

    def forward(self, ids):
        t = ids.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        x, balance, z = self.embed(ids) + self.place[:t], 0.0, 0.0
        for layer in self.layers:
            x, b, zz = layer(x, mask)
            balance, z = balance + b, z + zz
        return self.head(self.norm(x)), balance, z


def melodies(n, length, gen):
    """Intervals that depend on the mode of the piece and on the note; a few notes are improvised."""
    table = torch.randint(
        1, NOTES, (4, NOTES), generator=torch.Generator().manual_seed(42)
    )
    mode = torch.randint(0, 4, (n,), generator=gen)
    note = torch.randint(0, NOTES, (n,), generator=gen)
    free = torch.rand(n, length, generator=gen) < 0.1
    any_note = torch.randint(0, NOTES, (n, length), generator=gen)
    out = []
    for t in range(length):
        out.append(note)
        note = torch.where(
            free[:, t], any_note[:, t], (note + table[mode, note]) % NOTES
        )
    out = torch.stack(out, 1)
    keep = torch.randint(length // 2, length + 1, (n,), generator=gen)
    target = out.masked_fill(torch.arange(length) >= keep[:, None], -100)
    return out[:, :-1], target[:, 1:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=45)
    args = p.parse_args()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = Composer()
    decay = [q for q in model.parameters() if q.ndim > 1]
    plain = [q for q in model.parameters() if q.ndim <= 1]
    opt = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": 0.05},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=4e-3,
        betas=(0.9, 0.98),
    )
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / 8, (8 / (s + 1)) ** 0.5)
    )
    held = melodies(64, 64, torch.Generator().manual_seed(99))

    for step in range(args.steps):
        stage = min(3 * step // args.steps, 2)
        length, batch = ((16, 64), (32, 32), (64, 16))[stage]
        micro = [melodies(batch, length, gen) for _ in range(2)]
        tokens = sum((t != -100).sum() for _, t in micro)
        opt.zero_grad()
        total = 0.0
        for x, y in micro:
            logits, balance, z = model(x)
            ce = (
                F.cross_entropy(
                    logits.transpose(1, 2), y, ignore_index=-100, reduction="sum"
                )
                / tokens
            )
            (ce + (0.01 * balance + 1e-3 * z) / len(micro)).backward()
            total += ce.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 5 == 0 or step == args.steps - 1:
            print(
                f"step {step:3d} length {length} loss {total:.3f} balance {balance.item():.3f}"
            )

    model.eval()
    with torch.no_grad():
        logits, *_ = model(held[0])
        loss = F.cross_entropy(logits.transpose(1, 2), held[1], ignore_index=-100)
    print(
        f"held out loss {loss.item():.3f} (uniform {torch.tensor(float(NOTES)).log().item():.3f})"
    )


if __name__ == "__main__":
    main()
