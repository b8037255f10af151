"""Character model of sea shanties, scored with and without adaptation to the song.

Every shanty has its own invented refrain, so a model that keeps adapting while it
reads does better than a frozen one.  The adaptation rate is picked on validation songs.
"""
import argparse
import math
import os
import random
import tempfile

import torch
from torch import nn

ALPHABET = "abcdefghijklmnopqrstuvwxyz ,.\n"
STOI = {c: i for i, c in enumerate(ALPHABET)}
VERSES = [
    "oh the {0} came over the bay,",
    "and the wind blew {1} all day,",
    "we hauled and we sang {2},",
    "heave away my {0} heave away.",
    "the captain he cried {1} and rum,",
    "so {2} and {2} till morning come.",
]


def invent(rng):
    onset, vowel = "bdfgklmnprstvwz", "aeiou"
    return "".join(
        rng.choice(onset) + rng.choice(vowel) for _ in range(rng.randint(3, 4))
    )


def write_songs(count, seed, lines=9):
    rng = random.Random(seed)
    songs = []
    for _ in range(count):
        words = [invent(rng) for _ in range(3)]
        body = [rng.choice(VERSES).format(*words) for _ in range(lines)]
        songs.append("\n".join(body) + "\n\n")
    return torch.tensor([STOI[c] for c in "".join(songs)])


class ShantyModel(nn.Module):
    def __init__(self, width=96, drop=0.15):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), 32)
        self.rnn = nn.LSTM(32, width, batch_first=True)
        self.drop = nn.Dropout(drop)
        self.out = nn.Linear(width, len(ALPHABET))

    def forward(self, x, state=None):
        h, state = self.rnn(self.drop(self.embed(x)), state)
        return self.out(self.drop(h)), state


def cut(state):
    return tuple(s.detach() for s in state)


def nll(logits, target, reduction="mean"):
    return nn.functional.cross_entropy(
        logits.reshape(-1, len(ALPHABET)), target.reshape(-1), reduction=reduction
    )


def streams(text, rows):
    length = (len(text) - 1) // rows
    x = text[: rows * length].view(rows, length)
    y = text[1 : rows * length + 1].view(rows, length)
    return x, y


def train_epoch(model, optimizer, text, rows, span):
    model.train()
    x, y = streams(text, rows)
    state, total, count = None, 0.0, 0
    for at in range(0, x.shape[1], span):
        logits, state = model(x[:, at : at + span], state)
        state = cut(state)
        target = y[:, at : at + span]
        loss = nll(logits, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total, count = total + loss.item() * target.numel(), count + target.numel()
    return total / count / math.log(2)


@torch.no_grad()
def static_bits(model, text):
    model.eval()
    logits, _ = model(text[None, :-1])
    return nll(logits, text[None, 1:]).item() / math.log(2)


def gradient_scale(model, text, rows=16, span=24):
    """Root mean square gradient per weight over the training songs; nothing is stepped."""
    model.eval()
    squares = [torch.zeros_like(p) for p in model.parameters()]
    x, y = streams(text, rows)
    state, n = None, 0
    for at in range(0, x.shape[1] - span, span):
        logits, state = model(x[:, at : at + span], state)
        state = cut(state)
        loss = nll(logits, y[:, at : at + span])
        for s, g in zip(squares, torch.autograd.grad(loss, list(model.parameters()))):
            s.addcmul_(g, g)
        n += 1
    return [(s / n).sqrt() for s in squares]


def dynamic_bits(model, text, scale, rate, pull=0.02, span=24):
    """Score a segment first, then let the weights move on it; weights return at the end."""
    model.eval()
    anchor = [p.detach().clone() for p in model.parameters()]
    mean_scale = [s.mean() for s in scale]
    state, total, count = None, 0.0, 0
    for at in range(0, len(text) - 1, span):
        x = text[at : at + span][: len(text) - 1 - at]
        y = text[at + 1 : at + 1 + span]
        logits, state = model(x[None], state)
        state = cut(state)
        loss = nll(logits, y[None])
        total, count = total + loss.item() * len(y), count + len(y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g, a, s, m in zip(
                model.parameters(), grads, anchor, scale, mean_scale
            ):
                p.sub_(rate * g / (s + 0.1 * m + 1e-8))
                p.add_((a - p) * (pull * s / (m + 1e-12)).clamp(max=0.2))
    with torch.no_grad():
        for p, a in zip(model.parameters(), anchor):
            p.copy_(a)
    return total / count / math.log(2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--span", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1861)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train = write_songs(190, args.seed)
    valid, test = write_songs(5, args.seed + 1), write_songs(8, args.seed + 2)
    model = ShantyModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, args.epochs, eta_min=5e-4
    )
    path = os.path.join(tempfile.mkdtemp(prefix="shanties_"), "best.pt")

    best = float("inf")
    for epoch in range(args.epochs):
        fit = train_epoch(model, optimizer, train, args.rows, args.span)
        schedule.step()
        held = static_bits(model, valid)
        kept = held < best
        if kept:
            best = held
            torch.save(model.state_dict(), path)
        print(
            f"epoch {epoch} train {fit:.3f} bpc, valid {held:.3f} bpc{' *' if kept else ''}"
        )
    model.load_state_dict(torch.load(path, weights_only=True))

    scale = gradient_scale(model, train[:12000])
    board = {r: dynamic_bits(model, valid, scale, r) for r in (1e-4, 3e-4, 1e-3)}
    for rate, bits in board.items():
        print(f"  adaptation rate {rate:g}: valid {bits:.3f} bpc")
    rate = min(board, key=board.get)
    print(
        f"test songs: frozen {static_bits(model, test):.3f} bpc, "
        f"adapting (rate {rate:g}) {dynamic_bits(model, test, scale, rate):.3f} bpc, "
        f"frozen again {static_bits(model, test):.3f} bpc"
    )


if __name__ == "__main__":
    main()
