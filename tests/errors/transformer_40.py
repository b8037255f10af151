"""Transformer from scratch (encoder / decoder), toy translation: the target is the source reversed
with every word mapped to another vocabulary. Sentences have different lengths."""
import argparse
import math
import random

import torch
from torch import nn

PAD, SOS, EOS, WORDS = 0, 1, 2, 20

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=140)
parser.add_argument("--batch_size", type=int, default=24)
parser.add_argument("--d_model", type=int, default=48)
parser.add_argument("--warmup", type=int, default=40)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()


class ScaleDotProductAttention(nn.Module):
    def forward(self, q, k, v, mask=None):
        score = q @ k.transpose(2, 3) / math.sqrt(q.size(-1))
        if mask is not None:
            score = score.masked_fill(mask == 0, -10000)
        return score.softmax(-1) @ v


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        self.n_head = n_head
        self.attention = ScaleDotProductAttention()
        self.w_q, self.w_k, self.w_v, self.w_o = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def split(self, x):
        b, n, d = x.shape
        return x.view(b, n, self.n_head, d // self.n_head).transpose(1, 2)

    def forward(self, q, k, v, mask=None):
        out = self.attention(
            self.split(self.w_q(q)),
            self.split(self.w_k(k)),
            self.split(self.w_v(v)),
            mask,
        )
        b, h, n, d = out.shape
        return self.w_o(out.transpose(1, 2).reshape(b, n, h * d))


class Layer(nn.Module):
    def __init__(self, d, heads, cross=False, drop=0.05):
        super().__init__()
        self.self_attn, self.n1 = MultiHeadAttention(d, heads), nn.LayerNorm(d)
        self.cross, self.n2 = (
            (MultiHeadAttention(d, heads), nn.LayerNorm(d)) if cross else (None, None)
        )
        self.ffn, self.n3 = nn.Sequential(
            nn.Linear(d, 3 * d), nn.ReLU(), nn.Linear(3 * d, d)
        ), nn.LayerNorm(d)
        self.drop = nn.Dropout(drop)

    def forward(self, x, mask, enc=None, enc_mask=None):
        x = self.n1(x + self.drop(self.self_attn(x, x, x, mask)))
        if self.cross is not None:
            x = self.n2(x + self.drop(self.cross(x, enc, enc, enc_mask)))
        return self.n3(x + self.drop(self.ffn(x)))


class Transformer(nn.Module):
    def __init__(self, d=48, heads=4, layers=2, max_len=24):
        super().__init__()
        self.src_emb, self.trg_emb = nn.Embedding(WORDS + 3, d), nn.Embedding(
            WORDS + 3, d
        )
        self.pos = nn.Parameter(torch.randn(max_len, d) * 0.3)
        self.encoder = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(d, heads, cross=True) for _ in range(layers))
        self.linear = nn.Linear(d, WORDS + 3)

    def make_pad_mask(self, ids):
        dim = 3
        if args.fixed:
            dim = 2
        return (ids != PAD).unsqueeze(1).unsqueeze(dim)

    def make_trg_mask(self, trg):
        n = trg.shape[1]
        return self.make_pad_mask(trg) & torch.tril(torch.ones(n, n)).bool()

    def encode(self, src):
        x = self.src_emb(src) + self.pos[: src.shape[1]]
        mask = self.make_pad_mask(src)
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def cross_mask(self, src, trg):
        # (batch, 1, len_trg or 1, len_src or 1)
        mask = self.make_pad_mask(src)
        return mask if mask.shape[-1] == src.shape[1] else self.make_pad_mask(trg)

    def forward(self, src, trg):
        enc = self.encode(src)
        x = self.trg_emb(trg) + self.pos[: trg.shape[1]]
        m, cm = self.make_trg_mask(trg), self.cross_mask(src, trg)
        for layer in self.decoder:
            x = layer(x, m, enc, cm)
        return self.linear(x)


def sentence_pair(rng):
    n = rng.choice([3, 4, 5, 6, 14])
    src = [rng.randint(3, WORDS + 2) for _ in range(n)]
    trg = [3 + (w * 7) % WORDS for w in reversed(src)]
    return src, [SOS] + trg + [EOS]


def pad(rows):
    n = max(map(len, rows))
    return torch.tensor([r + [PAD] * (n - len(r)) for r in rows])


def get_batch(rng, size):
    pairs = [sentence_pair(rng) for _ in range(size)]
    return pad([p[0] for p in pairs]), pad([p[1] for p in pairs])


torch.manual_seed(0)
rng, val_rng = random.Random(1), random.Random(99)
model = Transformer(args.d_model)
for p in model.parameters():
    if p.dim() > 1 and p is not model.pos:
        nn.init.xavier_uniform_(p)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda i: min((i + 1) / args.warmup, math.sqrt(args.warmup / (i + 1)))
)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
val_src, val_trg = get_batch(val_rng, 120)

for step in range(1, args.steps + 1):
    model.train()
    src, trg = get_batch(rng, args.batch_size)
    out = model(src, trg[:, :-1])
    loss = criterion(out.reshape(-1, out.shape[-1]), trg[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if step % 20 == 0:
        model.eval()
        with torch.no_grad():
            pred = model(val_src, val_trg[:, :-1]).argmax(-1)
        real = val_trg[:, 1:] != PAD
        print(
            f"step {step} loss {loss.item():.4f} val token acc {(pred == val_trg[:, 1:])[real].float().mean():.3f}"
        )

if args.prove:
    model.eval()
    with torch.no_grad():
        one = torch.tensor([[5, 9, 12, 7]])
        wide = torch.cat([one, torch.full((1, 8), PAD)], 1)
        diff = (model.encode(one) - model.encode(wide)[:, :4]).abs().max().item()
    print(f"change of the encoded sentence by padding {diff:.5f}")
    print("fault shows:", "yes" if diff > 1e-3 else "no")
