"""Tells urgent tickets from others by title, body and a few numbers.

After PyTorch, issue 4927.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

WORDS = 50


def tickets(count, seed):
    """A ticket is urgent by alarming words in title and body, and by its numbers."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        sizes = torch.randint(2, 12, (2,), generator=generator).tolist()
        title, body = (
            torch.randint(1, WORDS, (size,), generator=generator) for size in sizes
        )
        numbers = torch.randn(4, generator=generator)
        alarm = sum((text < 8).any().float() for text in (title, body)) - 1.2
        score = 2 * alarm + 1.5 * numbers[0] - numbers[1]
        rows.append((title, body, numbers, (score > 0).float()))
    return rows


def collate(rows):
    titles, bodies, numbers, urgent = zip(*rows)
    texts = []
    for group in (titles, bodies):
        sizes = torch.tensor([len(text) for text in group])
        texts.append((pad_sequence(group, batch_first=True), sizes))
    return *texts, torch.stack(numbers), torch.stack(urgent)


class TextEncoder(nn.Module):
    def __init__(self, fixed, width=32):
        super().__init__()
        self.fixed = fixed
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, text, sizes):
        sizes, order = sizes.sort(descending=True, stable=True)
        packed = pack_padded_sequence(self.words(text[order]), sizes, batch_first=True)
        _, (state, _) = self.lstm(packed)
        state = state[-1]
        if self.fixed:
            state = state[order.argsort()]
        return state


class TicketModel(nn.Module):
    def __init__(self, fixed, width=32):
        super().__init__()
        self.title, self.body = TextEncoder(fixed, width), TextEncoder(fixed, width)
        self.numbers = nn.Linear(4, width)
        self.head = nn.Sequential(
            nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, title, body, numbers):
        parts = self.title(*title), self.body(*body), self.numbers(numbers)
        return self.head(torch.cat(parts, 1))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    loader = DataLoader(
        tickets(1600, args.seed), batch_size=32, shuffle=True, collate_fn=collate
    )
    *held, held_urgent = collate(tickets(256, args.seed + 1))
    model = TicketModel(args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for *batch, urgent in loader:
            loss = F.binary_cross_entropy_with_logits(model(*batch), urgent)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        model.eval()
        with torch.no_grad():
            right = ((model(*held) > 0) == held_urgent.bool()).float().mean().item()
        print(f"epoch {epoch} accuracy {right:.4f}", flush=True)
    if args.prove:
        text, sizes = held[1]
        with torch.no_grad():
            together = model.body(text, sizes)
            apart = [
                model.body(text[at : at + 1, :size], sizes[at : at + 1])
                for at, size in enumerate(sizes.tolist())
            ]
        gap = (together - torch.cat(apart)).abs().amax(1)
        wrong = (gap > 1e-4).float().mean().item()
        print(f"{wrong:.4f} of the tickets have the state of another text")
        print("fault shows:", "yes" if wrong > 0 else "no", flush=True)


if __name__ == "__main__":
    main()
