"""Character model of sea shanties whose learning rate is found at a small width.

Maximal update parametrisation (Yang et al., 2022). Hidden matrices get a learning rate
inversely proportional to their width, attention logits are divided by the head size
and not by its root, and the readout and the queries start at zero. A rate chosen
with narrow proxies then carries over to the wide model, which is trained just once.
"""

import argparse
import json
import math
import random
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

BASE_WIDTH, HEADS = 24, 2


def sing(lines, seed):
    dice = random.Random(seed)
    who = ["captain", "bosun", "cook", "mate", "cabin boy", "carpenter"]
    does = ["hauls", "sings", "sleeps", "drinks", "rows", "swears"]
    where = ["on the deck", "in the hold", "by the mast", "at the wheel", "off the bow"]
    burden = ["way hey, blow the man down", "haul away, joe", "heave, me hearties"]
    song = []
    for i in range(lines):
        if i % 3 == 2:
            song.append(dice.choice(burden))
        else:
            song.append(
                f"the {dice.choice(who)} {dice.choice(does)} {dice.choice(where)}"
            )
    return "\n".join(song)


class Verse:
    def __init__(self, text, vocabulary):
        lookup = {c: i for i, c in enumerate(vocabulary)}
        self.codes = torch.tensor([lookup[c] for c in text])

    def sample(self, count, length, generator):
        starts = torch.randint(
            0, len(self.codes) - length, (count,), generator=generator
        )
        rows = self.codes[starts[:, None] + torch.arange(length + 1)]
        return rows[:, :-1], rows[:, 1:]

    def windows(self, length):
        usable = (len(self.codes) - 1) // length * length
        return (
            self.codes[:usable].view(-1, length),
            self.codes[1 : usable + 1].view(-1, length),
        )


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.head = width // HEADS
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.merge = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        for layer in (self.key, self.value, self.merge, self.up, self.down):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
        nn.init.zeros_(self.query.weight)

    def split(self, x):
        return x.unflatten(-1, (HEADS, self.head)).transpose(1, 2)

    def forward(self, x):
        h = self.norm1(x)
        attended = F.scaled_dot_product_attention(
            self.split(self.query(h)),
            self.split(self.key(h)),
            self.split(self.value(h)),
            is_causal=True,
            scale=math.sqrt(BASE_WIDTH // HEADS) / self.head,
        )
        x = x + self.merge(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ShantyModel(nn.Module):
    def __init__(self, symbols, width, depth=2, context=48):
        super().__init__()
        self.width = width
        self.token = nn.Embedding(symbols, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, symbols, bias=False)
        nn.init.normal_(self.token.weight, std=0.5)
        nn.init.normal_(self.place.weight, std=0.5)
        nn.init.zeros_(self.readout.weight)

    def forward(self, codes):
        x = self.token(codes) + self.place.weight[: codes.shape[1]]
        x = self.norm(self.blocks(x))
        return self.readout(x) * (BASE_WIDTH / self.width)

    def parameter_groups(self, lr):
        """Adam rates: matrices from width to width are scaled down with the width."""
        hidden = [p for p in self.blocks.parameters() if p.ndim == 2]
        chosen = {id(p) for p in hidden}
        others = [p for p in self.parameters() if id(p) not in chosen]
        return [
            {"params": hidden, "lr": lr * BASE_WIDTH / self.width},
            {"params": others, "lr": lr},
        ]


@torch.no_grad()
def held_loss(model, verse, length):
    model.eval()
    total, count = 0.0, 0
    codes, following = verse.windows(length)
    for x, y in zip(codes.split(64), following.split(64)):
        total += F.cross_entropy(
            model(x).flatten(0, 1), y.flatten(), reduction="sum"
        ).item()
        count += y.numel()
    model.train()
    return total / count


def train(symbols, width, lr, steps, verses, args, report=None):
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed + 1)
    model = ShantyModel(symbols, width, context=args.context)
    optimizer = torch.optim.Adam(model.parameter_groups(lr), betas=(0.9, 0.98))
    warmup = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warmup, (steps - step) / (steps - warmup)),
    )
    model.train()
    for step in range(1, steps + 1):
        codes, following = verses["sung"].sample(args.batch, args.context, generator)
        optimizer.zero_grad()
        logits = model(codes)
        loss = F.cross_entropy(logits.flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        schedule.step()
        if report and (step % report == 0 or step == 1):
            held = held_loss(model, verses["held"], args.context)
            print(f"  step {step:3d} loss {loss.item():.4f} held {held:.4f}")
    return model, held_loss(model, verses["held"], args.context)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wide", type=int, default=72)
    parser.add_argument("--proxy-steps", type=int, default=60)
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=48)
    args = parser.parse_args()

    sung, held = sing(1200, args.seed + 10), sing(150, args.seed + 11)
    final = sing(150, args.seed + 12)
    vocabulary = sorted(set(sung) | set(held) | set(final))
    texts = {"sung": sung, "held": held, "final": final}
    verses = {name: Verse(text, vocabulary) for name, text in texts.items()}
    symbols = len(vocabulary)
    print(f"{symbols} symbols, uniform guess {math.log(symbols):.4f}")

    sweep = {}
    for lr in (6e-3, 1.8e-2, 5.4e-2, 1.6e-1):
        _, sweep[lr] = train(symbols, BASE_WIDTH, lr, args.proxy_steps, verses, args)
        print(f"width {BASE_WIDTH} rate {lr:.1e}: held {sweep[lr]:.4f}")
    chosen = min(sweep, key=sweep.get)
    print(f"width {args.wide} with rate {chosen:.1e}")
    model, _ = train(symbols, args.wide, chosen, args.steps, verses, args, report=20)
    print(f"another song: {held_loss(model, verses['final'], args.context):.4f}")
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder) / "shanty.pt")
        (Path(folder) / "sweep.json").write_text(json.dumps(sweep))


if __name__ == "__main__":
    main()
