"""Trains a small decoder on melodies, whose notes hang on their place in the bar.

After anlp-fall2025-code, issue 1.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

NOTES, BAR, LENGTH, BATCH = 24, 8, 32, 32


class Decoder(nn.Module):
    def __init__(self, by_batch, width=48, longest=64):
        super().__init__()
        self.by_batch = by_batch
        self.note = nn.Embedding(NOTES, width)
        self.place = nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 96, dropout=0.1, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, NOTES)

    def positions(self, notes):
        if self.by_batch:
            return torch.arange(notes.size(0)).unsqueeze(1)
        return torch.arange(notes.size(1)).unsqueeze(0)

    def forward(self, notes):
        hidden = self.note(notes) + self.place(self.positions(notes))
        mask = nn.Transformer.generate_square_subsequent_mask(notes.size(1))
        return self.head(self.blocks(hidden, mask=mask, is_causal=True))


def melodies(count, seed):
    """A note is near the one before it or, at the strong beats, the root of a chord."""
    chords = torch.randint(NOTES, (BAR,), generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(seed)
    notes = torch.randint(NOTES, (count, LENGTH + 1), generator=generator)
    for at in range(1, LENGTH + 1):
        move = torch.randint(-1, 2, (count,), generator=generator)
        near = (notes[:, at - 1] + move) % NOTES
        strong = at % 2 == 0
        notes[:, at] = chords[at // 2 % BAR] if strong else near
        free = torch.rand(count, generator=generator) < 0.1
        other = torch.randint(NOTES, (count,), generator=generator)
        notes[:, at] = torch.where(free, other, notes[:, at])
    return notes


def loss_of(model, notes):
    logits = model(notes[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), notes[:, 1:].flatten())


@torch.no_grad()
def evaluate(model, notes):
    model.eval()
    losses = [loss_of(model, part).item() for part in notes.split(BATCH)]
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = melodies(1024, args.seed), melodies(256, args.seed + 1)
    loader = DataLoader(train, batch_size=BATCH, shuffle=True)
    model = Decoder(by_batch=not args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for notes in loader:
            loss = loss_of(model, notes)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} validation {evaluate(model, valid):.4f}", flush=True)
    if args.prove:
        model.eval()
        with torch.no_grad():
            rows = valid[:BATCH, :-1]
            gap = (model(rows) - model(rows.flip(0)).flip(0)).abs().max().item()
        print(f"rows in another order have logits that are apart by up to {gap:.6f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
