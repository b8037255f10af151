"""Guess the town of a carillon tune from its notes.

Every town has a few turns of phrase (four notes) that its ringers like; a tune is
24 notes long, two of the town's phrases sit anywhere in it and the rest wanders.
"""
import argparse
import math
import os
import random
import tempfile

import torch
from torch import nn

TOWNS = ["Mechelen", "Delft", "Perpignan", "Oslo", "Tavistock"]
BELLS, LENGTH, PHRASE = 14, 24, 4


def town_phrases(rng):
    book = {}
    for town in range(len(TOWNS)):
        book[town] = [[rng.randrange(BELLS) for _ in range(PHRASE)] for _ in range(3)]
    return book


def compose(book, rng):
    town = rng.randrange(len(TOWNS))
    note, tune = rng.randrange(BELLS), []
    for _ in range(LENGTH):
        note = (note + rng.choice([-2, -1, -1, 0, 1, 1, 2])) % BELLS
        tune.append(note)
    first = rng.randrange(0, LENGTH // 2 - PHRASE)
    second = rng.randrange(LENGTH // 2, LENGTH - PHRASE)
    for start in (first, second):
        tune[start : start + PHRASE] = rng.choice(book[town])
    return tune, town


def corpus(count, seed):
    rng = random.Random(seed)
    book = town_phrases(rng)
    tunes, towns = zip(*[compose(book, rng) for _ in range(count)])
    return torch.tensor(tunes), torch.tensor(towns)


class Heads(nn.Module):
    def __init__(self, width, heads, args):
        super().__init__()
        self.heads = heads
        self.size = width // heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(width, width, bias=False)
        self.to_v = nn.Linear(width, width, bias=False)
        self.merge = nn.Linear(width, width)
        self.fixed = args.fixed
        # one learned bias per head and relative distance
        self.distance = nn.Parameter(torch.zeros(heads, 2 * LENGTH - 1))
        place = torch.arange(LENGTH)
        self.register_buffer("gap", place[None, :] - place[:, None] + LENGTH - 1)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.size))

    def weights(self, x):
        q, k = self.split(self.to_q(x)), self.split(self.to_k(x))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.size)
        scores = scores + self.distance[:, self.gap]
        if self.fixed:
            return scores.softmax(dim=3)
        return scores.softmax(dim=2)

    def forward(self, x):
        mixed = torch.einsum(
            "bhqk,bkhd->bqhd", self.weights(x), self.split(self.to_v(x))
        )
        return self.merge(mixed.flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads, drop, args):
        super().__init__()
        self.pre_attention = nn.LayerNorm(width)
        self.attention = Heads(width, heads, args)
        self.pre_feed = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        x = x + self.drop(self.attention(self.pre_attention(x)))
        return x + self.drop(self.feed(self.pre_feed(x)))


class TuneReader(nn.Module):
    def __init__(self, args, width=32, heads=4, layers=2):
        super().__init__()
        self.bell = nn.Embedding(BELLS, width)
        self.layers = nn.ModuleList(
            Layer(width, heads, 0.1, args) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.town = nn.Linear(width, len(TOWNS))

    def forward(self, tune):
        x = self.bell(tune)
        for layer in self.layers:
            x = layer(x)
        return self.town(self.norm(x).amax(dim=1))


def micro_batches(tunes, towns, size, generator):
    order = torch.randperm(len(tunes), generator=generator)
    for rows in order.split(size):
        if len(rows) == size:
            yield tunes[rows], towns[rows]


@torch.inference_mode()
def accuracy(model, tunes, towns):
    model.eval()
    guess = torch.cat([model(chunk).argmax(1) for chunk in tunes.split(250)])
    model.train()
    return (guess == towns).float().mean().item()


def learning_rate(step, total, peak, warm=15):
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


@torch.inference_mode()
def prove(model, tunes):
    """For each layer: does a note's attention over the tune add up to one?"""
    model.eval()
    worst = 0.0
    x = model.bell(tunes[:200])
    for number, layer in enumerate(model.layers):
        rows = layer.attention.weights(layer.pre_attention(x)).sum(-1)
        gap = (rows - 1).abs().max().item()
        print(f"layer {number}: largest distance of a row sum from one {gap:.4f}")
        worst = max(worst, gap)
        x = layer(x)
    print("fault shows:", "yes" if worst > 1e-3 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--micro", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--peak", type=float, default=5e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(6)
    tunes, towns = corpus(2900, seed=40)
    held_tunes, held_towns = tunes[2400:], towns[2400:]
    tunes, towns = tunes[:2400], towns[:2400]
    model = TuneReader(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.peak, weight_decay=0.02)
    generator = torch.Generator().manual_seed(8)
    stream = micro_batches(tunes, towns, args.micro, generator)

    def fetch():
        nonlocal stream
        try:
            return next(stream)
        except StopIteration:
            stream = micro_batches(tunes, towns, args.micro, generator)
            return next(stream)

    window = []
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.peak)
        optimizer.zero_grad()
        for _ in range(args.accumulate):
            tune, town = fetch()
            loss = nn.functional.cross_entropy(model(tune), town, label_smoothing=0.02)
            (loss / args.accumulate).backward()
            window.append(loss.item())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 20 == 0:
            held = accuracy(model, held_tunes, held_towns)
            print(
                f"step {step + 1} loss {sum(window) / len(window):.3f} held-out {held:.3f}"
            )
            window.clear()
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "tune_reader.pt"))
    print(f"final accuracy {accuracy(model, held_tunes, held_towns):.3f}")
    if args.prove:
        prove(model, held_tunes)


if __name__ == "__main__":
    main()
