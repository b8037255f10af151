"""Spelling to phones: a GRU encoder and a hand-written cell as decoder, scheduled sampling.

Batches are bucketed by length through a batch sampler of its own; the decoder is fed its own
predictions with a probability that grows. Label smoothing, layer-wise learning rates.
"""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

LETTERS, PHONES = 26, 18
PAD, BOS, EOS = 0, 1, 2


class Lexicon(Dataset):
    """Letters map to phones by pairs: the phone depends on the letter and on the one after it."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            w = [rng.randrange(LETTERS) for _ in range(rng.randint(3, 9))]
            p = [
                (c // 2 + (3 if i + 1 < len(w) and w[i + 1] < 6 else 0)) % PHONES
                for i, c in enumerate(w)
            ]
            self.rows.append(
                (torch.tensor(w) + 3, torch.tensor([BOS] + [q + 3 for q in p] + [EOS]))
            )

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Buckets(Sampler):
    """Shuffled batches of words of one length; the generator moves on from epoch to epoch."""

    def __init__(self, data, size, seed=0):
        self.size, self.rng = size, random.Random(seed)
        self.by_length = {}
        for i, (w, _) in enumerate(data.rows):
            self.by_length.setdefault(len(w) // 2, []).append(i)

    def __iter__(self):
        batches = []
        for rows in self.by_length.values():
            rows = rows[:]
            self.rng.shuffle(rows)
            batches += [rows[i : i + self.size] for i in range(0, len(rows), self.size)]
        self.rng.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return sum(-(-len(r) // self.size) for r in self.by_length.values())


def collate(rows):
    words, phones = zip(*rows)
    return (
        pad_sequence(words, True, PAD),
        torch.tensor([len(w) for w in words]),
        pad_sequence(phones, True, PAD),
    )


class Cell(nn.Module):
    """A minimal gated unit."""

    def __init__(self, inp, dim):
        super().__init__()
        self.f, self.c = nn.Linear(inp + dim, dim), nn.Linear(inp + dim, dim)

    def forward(self, x, h):
        f = torch.sigmoid(self.f(torch.cat([x, h], -1)))
        return (1 - f) * h + f * torch.tanh(self.c(torch.cat([x, f * h], -1)))


class Speller(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.letters = nn.Embedding(LETTERS + 3, dim, padding_idx=PAD)
        self.encoder = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.phones = nn.Embedding(PHONES + 3, dim, padding_idx=PAD)
        self.cell = Cell(2 * dim, dim)
        self.where = nn.Linear(dim, 24)
        self.key = nn.Linear(dim, 24)
        self.places = nn.Parameter(torch.randn(16, 24) * 0.3)
        self.start, self.out = nn.Linear(dim, dim), nn.Linear(2 * dim, PHONES + 3)

    def forward(self, words, lengths, phones, own):
        """Logits for phones[:, 1:]; with probability `own` a step is fed the model's last choice."""
        packed = pack_padded_sequence(
            self.letters(words), lengths, batch_first=True, enforce_sorted=False
        )
        memory, _ = nn.utils.rnn.pad_packed_sequence(
            self.encoder(packed)[0], batch_first=True
        )
        mask = (words != PAD)[:, : memory.shape[1]]
        key = self.key(memory) + self.places[: memory.shape[1]]
        h = torch.tanh(self.start(memory.sum(1) / lengths.unsqueeze(1)))
        token, logits = phones[:, 0], []
        for t in range(phones.shape[1] - 1):
            query = self.where(h) + self.places[t]
            score = (
                (key @ query.unsqueeze(-1))
                .squeeze(-1)
                .masked_fill(~mask, float("-inf"))
            )
            seen = (score.softmax(-1).unsqueeze(1) @ memory).squeeze(1)
            h = self.cell(torch.cat([self.phones(token), seen], -1), h)
            logits.append(self.out(torch.cat([h, seen], -1)))
            guess = logits[-1].detach().argmax(-1)
            token = torch.where(torch.rand(len(words)) < own, guess, phones[:, t + 1])
        return torch.stack(logits, 1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    torch.manual_seed(21)
    train, valid = Lexicon(1600, 1), Lexicon(200, 2)
    loader = DataLoader(train, batch_sampler=Buckets(train, 48), collate_fn=collate)
    check = DataLoader(valid, batch_size=100, collate_fn=collate)
    model = Speller()
    encoder = [*model.letters.parameters(), *model.encoder.parameters()]
    ids = {id(q) for q in encoder}
    opt = torch.optim.NAdam(
        [
            {"params": encoder, "lr": 4e-3},
            {"params": [q for q in model.parameters() if id(q) not in ids], "lr": 8e-3},
        ]
    )
    step = 0
    while step < args.steps:
        for words, lengths, phones in loader:
            own = 0.3 * step / args.steps
            logits = model(words, lengths, phones, own)
            loss = F.cross_entropy(
                logits.flatten(0, 1),
                phones[:, 1:].flatten(),
                ignore_index=PAD,
                label_smoothing=0.05,
            )
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 10 == 0 or step == args.steps - 1:
                print(f"step {step:3d} own {own:.2f} loss {loss.item():.3f}")
            step += 1
            if step == args.steps:
                break

    model.eval()
    right = total = 0
    with torch.no_grad():
        for words, lengths, phones in check:
            guess = model(words, lengths, phones, own=1.0).argmax(-1)
            real = phones[:, 1:] != PAD
            right += ((guess == phones[:, 1:]) & real).sum().item()
            total += real.sum().item()
    print(f"phones right when decoding freely: {right / total:.3f}")


if __name__ == "__main__":
    main()
