"""Trains a small decoder of chains of tokens from random weights and samples from it.

After huggingface/transformers, issue 48745.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, BOS, VOCAB = 0, 1, 26


def rule(last, before):
    return 2 + (3 * last + (before % 2)) % (VOCAB - 2)


class Chains(Dataset):
    """Eight of ten tokens follow from the two before them, the others are random."""

    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            row = [BOS, int(torch.randint(2, VOCAB, (1,), generator=gen))]
            for _ in range(int(torch.randint(10, 23, (1,), generator=gen))):
                if torch.rand(1, generator=gen) < 0.8:
                    row.append(rule(row[-1], row[-2]))
                else:
                    row.append(int(torch.randint(2, VOCAB, (1,), generator=gen)))
            self.rows.append(torch.tensor(row))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return ids, (ids != PAD)


def create_bidirectional_mask(attention_mask):
    """(batch, 1, 1, key)"""
    return attention_mask[:, None, None, :]


def create_causal_mask(attention_mask):
    """(batch, 1, query, key)"""
    length = attention_mask.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return causal[None, None] & attention_mask[:, None, None, :]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def forward(self, x, mask):
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
        return x + self.mlp(self.norm2(x))


class DecoderForCausalLM(nn.Module):
    def __init__(self, dim=48, heads=4, layers=2, max_length=32):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, dim)
        self.positions = nn.Embedding(max_length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB)

    def make_mask(self, attention_mask):
        return create_bidirectional_mask(attention_mask)

    def forward(self, ids, attention_mask, labels=None):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        mask = self.make_mask(attention_mask)
        for block in self.blocks:
            x = block(x, mask)
        logits = self.head(self.norm(x))
        if labels is None:
            return logits
        labels = labels.masked_fill(~attention_mask, -100)
        return F.cross_entropy(
            logits[:, :-1].reshape(-1, VOCAB),
            labels[:, 1:].reshape(-1),
            ignore_index=-100,
        )


class CausalDecoderForCausalLM(DecoderForCausalLM):
    def make_mask(self, attention_mask):
        return create_causal_mask(attention_mask)


@torch.no_grad()
def validation_loss(model, loader):
    model.eval()
    losses = [model(ids, mask, ids).item() for ids, mask in loader]
    model.train()
    return sum(losses) / len(losses)


@torch.no_grad()
def generate(model, count=32, length=16):
    """The share of generated tokens that follow the rule."""
    model.eval()
    gen = torch.Generator().manual_seed(5)
    first = torch.randint(2, VOCAB, (count, 1), generator=gen)
    ids = torch.cat([torch.full((count, 1), BOS), first], 1)
    for _ in range(length):
        logits = model(ids, torch.ones_like(ids, dtype=torch.bool))[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
    model.train()
    good = sum(
        rule(row[i - 1], row[i - 2]) == row[i]
        for row in ids.tolist()
        for i in range(2, len(row))
    )
    return good / (count * length)


def train(args, model):
    loader = DataLoader(
        Chains(1024, 1),
        args.batch_size,
        shuffle=True,
        collate_fn=collate,
        drop_last=True,
    )
    held = DataLoader(Chains(128, 2), 64, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    while step < args.steps:
        for ids, mask in loader:
            loss = model(ids, mask, labels=ids)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 30 == 0:
                print(
                    f"step {step} loss {loss.item():.4f} "
                    f"validation {validation_loss(model, held):.4f}",
                    flush=True,
                )
            step += 1
            if step == args.steps:
                break
    print(
        f"validation {validation_loss(model, held):.4f} "
        f"generated tokens that follow the rule {generate(model):.3f}",
        flush=True,
    )


@torch.no_grad()
def change_by_last_token(model):
    """By how much another last token changes the logits before it."""
    ids, mask = collate([Chains(1, 9)[0]])
    other = ids.clone()
    other[:, -1] = 2 + (other[:, -1] - 1) % (VOCAB - 2)
    return (model(ids, mask) - model(other, mask))[:, :-1].abs().max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = CausalDecoderForCausalLM() if args.fixed else DecoderForCausalLM()
    train(args, model)
    if args.prove:
        change = change_by_last_token(model)
        print(f"the last token changes earlier logits by {change:.6f}")
        print("fault shows:", "yes" if change > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
