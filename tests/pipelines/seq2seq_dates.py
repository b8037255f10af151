"""Translates dates people write ("3 march 07") into ISO ones, character by character:
GRU encoder, GRU decoder with attention. One table embeds the decoder's inputs and is
its output layer; the evaluation generates greedily.

    python seq2seq_dates.py --steps 120
"""

import argparse
import datetime
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS = 0, 1, 2
SOURCE = {c: i for i, c in enumerate(" ,.abcdefghijlmnoprstuvy0123456789", start=3)}
TARGET = {c: i for i, c in enumerate("0123456789-", start=3)}
LETTERS = {i: c for c, i in TARGET.items()}
FORMATS = ["%d %B %y", "%B %d, %Y", "%d.%m.%Y", "%d %b %Y"]


def random_date(rng):
    day = datetime.date(1990, 1, 1) + datetime.timedelta(rng.randrange(15000))
    return day.strftime(rng.choice(FORMATS)).lower(), day.isoformat()


def collate(pairs):
    src = [[SOURCE[c] for c in text] + [EOS] for text, _ in pairs]
    tgt = [[BOS] + [TARGET[c] for c in iso] + [EOS] for _, iso in pairs]
    length = max(map(len, src))
    src = [ids + [PAD] * (length - len(ids)) for ids in src]
    return torch.tensor(src), torch.tensor(tgt)


class DateTranslator(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.src_emb = nn.Embedding(len(SOURCE) + 3, dim, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(len(TARGET) + 3, dim)
        self.encoder = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.query = nn.Linear(dim, dim, bias=False)
        self.merge = nn.Linear(2 * dim, dim)
        self.out = nn.Linear(dim, len(TARGET) + 3)
        self.out.weight = self.tgt_emb.weight
        nn.init.normal_(self.tgt_emb.weight, std=dim**-0.5)

    def encode(self, src):
        memory, _ = self.encoder(self.src_emb(src))
        return memory, src == PAD

    def decode(self, tgt, memory, padding, state=None):
        h, state = self.decoder(self.tgt_emb(tgt), state)
        scores = self.query(h) @ memory.transpose(1, 2)
        scores = scores.masked_fill(padding.unsqueeze(1), float("-inf"))
        read = scores.softmax(dim=-1) @ memory
        merged = torch.tanh(self.merge(torch.cat([h, read], dim=-1)))
        return self.out(merged), state

    def forward(self, src, tgt):
        memory, padding = self.encode(src)
        return self.decode(tgt, memory, padding)[0]

    @torch.no_grad()
    def generate(self, src, max_len=12):
        memory, padding = self.encode(src)
        token = torch.full((len(src), 1), BOS)
        state, tokens = None, []
        finished = torch.zeros(len(src), dtype=torch.bool)
        for _ in range(max_len):
            logits, state = self.decode(token, memory, padding, state)
            token = logits.argmax(-1)
            tokens.append(token)
            finished |= token.squeeze(1) == EOS
            if finished.all():
                break
        return torch.cat(tokens, dim=1)


def to_text(ids):
    text = ""
    for i in ids.tolist():
        if i == EOS:
            break
        text += LETTERS.get(i, "?")
    return text


def evaluate(model, pairs):
    was_training = model.training
    model.eval()
    guesses = [to_text(ids) for ids in model.generate(collate(pairs)[0])]
    model.train(was_training)
    near = [
        sum(a == b for a, b in zip(guess, iso)) / len(iso)
        for guess, (_, iso) in zip(guesses, pairs)
    ]
    return sum(near) / len(near), f"{pairs[0][0]!r} -> {guesses[0]!r}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=6e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(21)
    rng = random.Random(21)
    held_out = [random_date(rng) for _ in range(100)]

    model = DateTranslator()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(1, args.steps + 1):
        src, tgt = collate([random_date(rng) for _ in range(args.batch_size)])
        logits = model(src, tgt[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            right, example = evaluate(model, held_out)
            print(
                f"{step} loss {loss.item():.6f} right {right:.4f} {example}", flush=True
            )
