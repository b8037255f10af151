"""Trains a small causal language model with attention of its own.

    python char_gpt.py --steps 16
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog and runs into the deep wood "


class CausalAttention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        parts = (
            self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(
            *parts, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads, dropout)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.dropout(self.mlp(self.before_mlp(x)))


class CharModel(nn.Module):
    def __init__(self, letters, width, heads, blocks, dropout, context):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)
        self.head.weight = self.letters.weight

    def forward(self, letters):
        places = torch.arange(letters.shape[1])
        x = self.letters(letters) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def excerpts(data, size, length, generator):
    starts = torch.randint(len(data) - length - 1, (size,), generator=generator)
    rows = torch.stack([data[start : start + length + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


def loss_of(model, inputs, targets):
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def train(options):
    torch.manual_seed(options.seed)
    alphabet = sorted(set(TEXT))
    data = torch.tensor([alphabet.index(letter) for letter in TEXT * 4])
    model = CharModel(len(alphabet), 32, 4, 2, options.dropout, options.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    generator = torch.Generator().manual_seed(options.seed)
    held_out = excerpts(data, 16, options.context, generator)
    for step in range(options.steps):
        model.train()
        batch = excerpts(data, options.batch_size, options.context, generator)
        loss = loss_of(model, *batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item().hex()}", flush=True)
        if step % options.evaluate_every == options.evaluate_every - 1:
            model.eval()
            with torch.no_grad():
                loss_of(model, *held_out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--evaluate-every", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--context", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=13)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train(options)


if __name__ == "__main__":
    main()
