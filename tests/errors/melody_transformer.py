"""Next-note model for folk melodies (tokenised pitches), small transformer."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PITCHES = 32
BOS = PITCHES
VOCAB = PITCHES + 1


def write_melodies(n, length, gen):
    """random walks on a major scale with a tonic that pulls them back"""
    scale = torch.tensor([0, 2, 4, 5, 7, 9, 11])
    ladder = torch.cat([scale + 12 * k for k in range(3)])
    ladder = ladder[ladder < PITCHES]
    pos = torch.randint(3, len(ladder) - 3, (n,), generator=gen)
    notes = []
    for _ in range(length):
        notes.append(ladder[pos])
        jump = torch.randint(-2, 3, (n,), generator=gen)
        pull = torch.sign(len(ladder) // 2 - pos) * (torch.rand(n, generator=gen) < 0.3)
        pos = (pos + jump + pull).clamp(0, len(ladder) - 1)
    notes = torch.stack(notes, 1)
    return torch.cat([torch.full((n, 1), BOS), notes], 1)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def attend(self, x, causal):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(x)
            .view(b, t, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))

    def forward(self, x, causal):
        x = x + self.attend(self.norm1(x), causal)
        return x + self.mlp(self.norm2(x))


class MelodyModel(nn.Module):
    def __init__(self, dim=48, heads=4, depth=2, max_len=64, causal=False):
        super().__init__()
        self.causal = causal
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, self.causal)
        return self.head(self.norm(x))

    @torch.no_grad()
    def compose(self, n, gen):
        self.eval()
        ids = torch.full((1, 1), BOS)
        for _ in range(n):
            p = self(ids)[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(p, 1, generator=gen)], 1)
        self.train()
        return ids[0, 1:].tolist()


def lr_at(step, total, peak):
    warm = max(1, total // 10)
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


def lm_loss(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--length", type=int, default=32)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(23)
    gen = torch.Generator().manual_seed(23)
    train = write_melodies(1500, args.length, gen)
    valid = write_melodies(128, args.length, gen)

    model = MelodyModel()
    if args.fixed:
        model.causal = True
    opt = torch.optim.AdamW(
        model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05
    )

    for step in range(args.steps):
        for group in opt.param_groups:
            group["lr"] = lr_at(step, args.steps, 4e-3)
        ids = train[torch.randint(0, len(train), (32,), generator=gen)]
        loss = lm_loss(model, ids)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if (step + 1) % 30 == 0:
            with torch.no_grad():
                ppl = lm_loss(model, valid).exp().item()
            print(f"step {step + 1} loss {loss.item():.3f} valid perplexity {ppl:.2f}")
    print("a new tune:", model.compose(16, gen))

    if args.prove:
        # change the last note only: the earlier outputs should not care
        with torch.no_grad():
            a = valid[:8].clone()
            b = a.clone()
            b[:, -1] = (b[:, -1] + 5) % PITCHES
            gap = (model(a)[:, :-1] - model(b)[:, :-1]).abs().max().item()
        print("fault shows:", "yes" if gap > 1e-4 else "no")


if __name__ == "__main__":
    main()
