"""A small GPT learns the language of a random grammar, with fused attention.

Causal attention by scaled_dot_product_attention with a mask that is a buffer of the
layer. rasbt/LLMs-from-scratch#1061.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

TOKENS, CONTEXT = 40, 32


class CausalAttention(nn.Module):
    def __init__(self, width, heads, keep_past):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        mask = torch.triu(torch.ones(CONTEXT, CONTEXT), diagonal=1).bool()
        self.register_buffer("mask", ~mask if keep_past else mask)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mask = self.mask[:length, :length]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, keep_past):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads, keep_past)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.first(x)))
        return x + self.dropout(self.mlp(self.second(x)))


class GPT(nn.Module):
    def __init__(self, keep_past, width=48, heads=4, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, width)
        self.places = nn.Embedding(CONTEXT, width)
        blocks = [Block(width, heads, keep_past) for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, TOKENS, bias=False)

    def forward(self, text):
        x = self.tokens(text) + self.places(torch.arange(text.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def texts(count, seed):
    """Every token is followed by one of six, with chances of its own."""
    generator = torch.Generator().manual_seed(8)
    following = torch.rand(TOKENS, TOKENS, generator=generator).topk(6, 1).indices
    chances = torch.rand(TOKENS, 6, generator=generator) ** 2 + 0.02
    generator = torch.Generator().manual_seed(seed)
    text = [torch.randint(TOKENS, (count,), generator=generator)]
    for _ in range(CONTEXT):
        chosen = torch.multinomial(chances[text[-1]], 1, generator=generator)
        text.append(following[text[-1]].gather(1, chosen).squeeze(1))
    return TensorDataset(torch.stack(text, 1))


def text_loss(model, text):
    logits = model(text[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses = [text_loss(model, text).item() for (text,) in loader]
    model.train()
    return sum(losses) / len(losses)


@torch.no_grad()
def peeking(model, text):
    """How much the first half's outputs change with the second half's tokens."""
    model.eval()
    changed = text.clone()
    changed[:, CONTEXT // 2 :] = (changed[:, CONTEXT // 2 :] + 1) % TOKENS
    gap = (model(text) - model(changed))[:, : CONTEXT // 2]
    return gap.abs().max().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=100)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(texts(640, 1), batch_size=32, shuffle=True)
    valid = DataLoader(texts(128, 2), batch_size=64)
    model = GPT(keep_past=options.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    step = 0
    while step < options.steps:
        for (text,) in train:
            if step == options.steps:
                break
            loss = text_loss(model, text)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"validation loss {evaluate(model, valid):.4f}", flush=True)
    if options.prove:
        gap = peeking(model, next(iter(valid))[0][:, :-1])
        print(f"later tokens change earlier outputs by {gap:.6f}", flush=True)
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
