"""A language model of recipes from a stream: workers read shards of their own, texts are
shuffled in a buffer and packed into rows; a text sees nothing of its neighbours in the
row, and positions start anew with each. Blocks are recomputed in the backward pass.

    python packed_recipes_stream.py
"""

import argparse
import random

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STEPS = ["wash", "peel", "cut", "fry", "boil", "salt", "serve"]
FOODS = ["leek", "rice", "beet", "carp", "kale", "plum"]
WORDS = ["<end>", "then", "the"] + STEPS + FOODS
INDEX = {word: number for number, word in enumerate(WORDS)}
ROW = 64


def recipe(rng):
    """Steps in their usual order, some left out, all with the same food."""
    food = rng.choice(FOODS)
    steps = [step for step in STEPS if rng.random() < 0.5] or ["serve"]
    words = []
    for step in steps:
        words += [step, "the", food, "then"]
    return [INDEX[word] for word in words[:-1]] + [INDEX["<end>"]]


class RecipeStream(IterableDataset):
    """Endless; a shard is a seed, and each worker has every n-th of them."""

    def __init__(self, seed, shards=8, buffer=32):
        self.seed, self.shards, self.buffer = seed, shards, buffer

    def texts(self, mine):
        pass_number = 0
        while True:
            for shard in mine:
                rng = random.Random(f"{self.seed}/{shard}/{pass_number}")
                for _ in range(20):
                    yield recipe(rng)
            pass_number += 1

    def shuffled(self, mine, rng):
        held = []
        for text in self.texts(mine):
            if len(held) < self.buffer:
                held.append(text)
                continue
            place = rng.randrange(self.buffer)
            held[place], text = text, held[place]
            yield text

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        rng = random.Random(f"{self.seed}/buffer/{worker}")
        row, owner = [], []
        number = 0
        for text in self.shuffled(range(worker, self.shards, workers), rng):
            if len(row) + len(text) > ROW:
                yield self.close(row, owner)
                row, owner, number = [], [], 0
            number += 1
            row += text
            owner += [number] * len(text)

    @staticmethod
    def close(row, owner):
        """Fills the row up; filling belongs to text 0 and is never a target."""
        owner = torch.tensor(owner + [0] * (ROW - len(owner)))
        ids = torch.tensor(row + [0] * (ROW - len(row)))
        begin = torch.ones(ROW, dtype=torch.bool)
        begin[1:] = owner[1:] != owner[:-1]
        place = torch.arange(ROW)
        place = place - torch.where(begin, place, 0).cummax(0).values
        targets = torch.full((ROW,), -100)
        same = (owner[1:] == owner[:-1]) & (owner[1:] > 0)
        targets[:-1] = torch.where(same, ids[1:], -100)
        return ids, owner, place, targets


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, mask):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, width=48, depth=2):
        super().__init__()
        self.word = nn.Embedding(len(WORDS), width)
        self.place = nn.Embedding(ROW, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, owner, place):
        same = owner[:, :, None] == owner[:, None, :]
        mask = (same & torch.ones(ROW, ROW, dtype=torch.bool).tril())[:, None]
        x = self.word(ids) + self.place(place)
        for block in self.blocks:
            if self.training:
                x = checkpoint(block, x, mask, use_reentrant=False)
            else:
                x = block(x, mask)
        return F.linear(self.norm(x), self.word.weight)


@torch.no_grad()
def perplexity(model, batches):
    model.eval()
    total = count = 0
    for ids, owner, place, targets in batches:
        logits = model(ids, owner, place).flatten(0, 1)
        total += F.cross_entropy(logits, targets.flatten(), reduction="sum").item()
        count += (targets != -100).sum().item()
    model.train()
    return torch.tensor(total / count).exp().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--parts", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    held = DataLoader(RecipeStream(args.seed + 1), batch_size=16)
    held = [batch for _, batch in zip(range(6), held)]
    stream = iter(DataLoader(RecipeStream(args.seed), batch_size=8, num_workers=2))
    model = Model()
    nn.init.normal_(model.word.weight, std=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    for step in range(args.steps):
        parts = [next(stream) for _ in range(args.parts)]
        words = sum((targets != -100).sum().item() for *_, targets in parts)
        shown = 0.0
        for ids, owner, place, targets in parts:
            logits = model(ids, owner, place).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / words
            loss.backward()
            shown += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {shown:.4f}", flush=True)
        if step % 20 == 19:
            print(f"perplexity {perplexity(model, held):.4f}")


if __name__ == "__main__":
    main()
