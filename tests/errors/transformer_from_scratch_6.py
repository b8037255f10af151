# Encoder written from scratch (own multi-head attention), trained on a copy-style task: for every
# position say which token stands `offset` places further, where the offset is the first token.
import argparse
import math
import random

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, hidden_dim, num_heads, fixed=False):
        super().__init__()
        assert hidden_dim % num_heads == 0
        self.hidden_dim = hidden_dim
        self.num_heads = num_heads
        self.qkv_dim = hidden_dim // num_heads
        self.qkv_proj = nn.Linear(hidden_dim, 3 * hidden_dim, bias=False)
        self.o_proj = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.fixed = fixed
        nn.init.xavier_uniform_(self.qkv_proj.weight)
        nn.init.xavier_uniform_(self.o_proj.weight)

    def forward(self, x, padding_mask):
        batch_size, sequence_length, _ = x.shape
        qkv = self.qkv_proj(x)
        qkv = qkv.reshape(batch_size, sequence_length, self.num_heads, 3 * self.qkv_dim)
        qkv = qkv.permute(0, 2, 1, 3)  # B, heads, T, 3*qkv
        q, k, v = qkv.chunk(3, dim=-1)
        values, attn = self.scaled_dot_product(q, k, v, padding_mask)
        if self.fixed:
            values = values.permute(0, 2, 1, 3)
        # put the heads back together
        values = values.reshape(batch_size, sequence_length, self.hidden_dim)
        return self.o_proj(values)

    def scaled_dot_product(self, q, k, v, padding_mask):
        logits = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.qkv_dim)
        logits = logits.masked_fill(padding_mask[:, None, None, :] == 0, float("-inf"))
        attention = torch.softmax(logits, dim=-1)
        return torch.matmul(attention, v), attention


class EncoderBlock(nn.Module):
    def __init__(self, hidden_dim, ff_dim, num_heads, dropout_p, fixed):
        super().__init__()
        self.self_mha = MultiHeadAttention(hidden_dim, num_heads, fixed)
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden_dim, ff_dim), nn.ReLU(), nn.Linear(ff_dim, hidden_dim)
        )
        self.dropout1, self.dropout2 = nn.Dropout(dropout_p), nn.Dropout(dropout_p)
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(hidden_dim), nn.LayerNorm(
            hidden_dim
        )

    def forward(self, x, padding_mask):
        x = self.layer_norm1(x + self.dropout1(self.self_mha(x, padding_mask)))
        return self.layer_norm2(x + self.dropout2(self.feed_forward(x)))


class SinusoidEncoding(nn.Module):
    def __init__(self, hidden_dim, max_len=64):
        super().__init__()
        pos = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(
            torch.arange(0, hidden_dim, 2) * -(math.log(10000.0) / hidden_dim)
        )
        enc = torch.zeros(1, max_len, hidden_dim)
        enc[0, :, 0::2] = torch.sin(pos * div)
        enc[0, :, 1::2] = torch.cos(pos * div)
        self.register_buffer("pos_embed", enc, persistent=False)

    def forward(self, x):
        return x + self.pos_embed[:, : x.size(1)]


class TransformerEncoder(nn.Module):
    def __init__(
        self, vocab_size, hidden_dim, ff_dim, num_heads, num_layers, dropout_p, fixed
    ):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.embed = nn.Embedding(vocab_size, hidden_dim, padding_idx=0)
        self.pos = SinusoidEncoding(hidden_dim)
        self.blocks = nn.ModuleList(
            EncoderBlock(hidden_dim, ff_dim, num_heads, dropout_p, fixed)
            for _ in range(num_layers)
        )
        self.out = nn.Linear(hidden_dim, vocab_size)

    def forward(self, tokens):
        mask = tokens != 0
        x = self.pos(self.embed(tokens) * math.sqrt(self.hidden_dim))
        for block in self.blocks:
            x = block(x, mask)
        return self.out(x)


def construct_batch(rng, batch_size, vocab, max_len):
    """token 0 is padding, 1..3 say the offset, the rest are symbols"""
    src = torch.zeros(batch_size, max_len, dtype=torch.long)
    tgt = torch.full((batch_size, max_len), -100)
    for i in range(batch_size):
        n = rng.randint(8, max_len)
        offset = rng.randint(1, 3)
        row = [rng.randint(4, vocab - 1) for _ in range(n - 1)]
        src[i, :n] = torch.tensor([offset] + row)
        tgt[i, 1:n] = torch.tensor(row[offset:] + row[:offset])
    return src, tgt


def noam(step, dim, warmup):
    step = step + 1
    return dim**-0.5 * min(step**-0.5, step * warmup**-1.5)


def heads_stay_apart(mha, tokens=6):
    """change one position of the input, with attention forced to look at itself only"""
    x = torch.randn(1, tokens, mha.hidden_dim)
    y = x.clone()
    y[0, 2] += 1.0
    keep = mha.scaled_dot_product
    mha.scaled_dot_product = lambda q, k, v, m: (v, None)
    with torch.no_grad():
        moved = (mha(x, None) - mha(y, None)).abs().sum(-1)[0] > 1e-6
    mha.scaled_dot_product = keep
    return moved.nonzero().flatten().tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    rng = random.Random(0)
    vocab, dim = 20, 64
    model = TransformerEncoder(vocab, dim, 128, 4, 2, 0.05, args.fixed)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: noam(s, dim, 150)
    )
    criterion = nn.CrossEntropyLoss()
    model.train()
    for step in range(args.steps):
        src, tgt = construct_batch(rng, 48, vocab, 16)
        logits = model(src)
        loss = criterion(logits.transpose(1, 2), tgt)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 25 == 0 or step == args.steps - 1:
            keep = tgt != -100
            acc = (logits.argmax(-1) == tgt)[keep].float().mean().item()
            print(f"step {step}: loss {loss.item():.3f}, token accuracy {acc:.3f}")
    if args.prove:
        model.eval()
        moved = heads_stay_apart(model.blocks[0].self_mha)
        print(
            "positions that change when position 2 changes and each looks at itself only:",
            moved,
        )
        print("fault shows:", "yes" if moved != [2] else "no")


if __name__ == "__main__":
    main()
