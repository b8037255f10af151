"""A small decoder looks up entries of a ship's logbook: rotary positions, grouped
queries, RMS norms and gated layers by hand, bfloat16 autocast; answers are read with a
cache of keys and values.

    python rope_logbook.py --steps 90
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

KEYS, VALUES, PAIRS = 8, 8, 4
ASK, VOCABULARY = KEYS + VALUES, KEYS + VALUES + 1


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (wide * self.weight).to(x.dtype)


def rotate(x, start):
    """Turns pairs of channels by angles that grow with the position."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half) / half)
    angle = (start + torch.arange(x.shape[-2]))[:, None] * rates
    first, second = x.float().chunk(2, -1)
    left = first * angle.cos() - second * angle.sin()
    right = first * angle.sin() + second * angle.cos()
    return torch.cat([left, right], -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        past = 0 if cache is None or "k" not in cache else cache["k"].shape[2]
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2 * self.groups, self.size).chunk(2, 2)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        q, k = rotate(q, past), rotate(k, past)
        if past:
            k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
        if cache is not None:
            cache.update(k=k, v=v)
        repeat = self.heads // self.groups
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        scores = (q @ k.transpose(-1, -2)).float() / self.size**0.5
        later = torch.ones(length, past + length, dtype=torch.bool).triu(past + 1)
        chance = scores.masked_fill(later, -torch.inf).softmax(-1).to(v.dtype)
        return self.o((chance @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads=4, groups=2)
        self.gate = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x, cache=None):
        x = x + self.attention(self.norm1(x), cache)
        gate, up = self.gate(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, width=64, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.05)

    def forward(self, ids, caches=None):
        x = self.embed(ids)
        for index, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[index])
        return self.head(self.norm(x))


def logbook(count, generator):
    """Pairs of keys and values, then all keys asked in another order."""
    keys = torch.rand(count, KEYS, generator=generator).argsort(1)[:, :PAIRS]
    values = KEYS + torch.randint(VALUES, (count, PAIRS), generator=generator)
    order = torch.rand(count, PAIRS, generator=generator).argsort(1)
    told = torch.stack([keys, values], 2).flatten(1)
    asked = torch.stack([keys.gather(1, order), values.gather(1, order)], 2).flatten(1)
    mark = torch.full((count, 1), ASK)
    ids = torch.cat([told, mark, asked], 1)
    targets = torch.full_like(ids, -100)
    targets[:, 2 * PAIRS + 1 :: 2] = asked[:, 1::2]
    return ids, targets


@torch.no_grad()
def read(model, ids):
    """Gives the questions one after another, with a cache, and all at once."""
    caches = [{} for _ in model.blocks]
    model(ids[:, : 2 * PAIRS + 1], caches)
    answers = []
    for place in range(2 * PAIRS + 1, ids.shape[1], 2):
        logits = model(ids[:, place : place + 1], caches)
        answers.append(logits[:, -1, KEYS:ASK].argmax(1) + KEYS)
        model(ids[:, place + 1 : place + 2], caches)
    plain = model(ids)[:, 2 * PAIRS + 1 :: 2, KEYS:ASK].argmax(2) + KEYS
    answers = torch.stack(answers, 1)
    return answers, (answers == plain).float().mean().item()


def factor(step, total):
    """Warm-up, a long stable phase, and a straight decay in the last third."""
    return min((step + 1) / 10, 1.0, (total - step) / (total / 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=90)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    model = Decoder()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    gains = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": gains}]
    optimizer = torch.optim.AdamW(groups, 4e-3, (0.9, 0.95), weight_decay=0.0)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * factor(step, args.steps)
        ids, targets = logbook(64, generator)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f} norm {norm:.3f}", flush=True)
    model.eval()
    ids, targets = logbook(200, generator)
    answers, same = read(model, ids)
    right = (answers == ids[:, 2 * PAIRS + 2 :: 2]).float().mean()
    print(f"right answers {right:.3f}, the same without a cache {same:.3f}")


if __name__ == "__main__":
    main()
