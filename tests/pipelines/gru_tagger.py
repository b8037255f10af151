"""Trains a recurrent tagger, keeps its best weights and saves them at the end.

    python gru_tagger.py --steps 24
"""

import argparse
import copy
import pathlib
import tempfile

import torch
from torch import nn

WORDS, TAGS, LENGTH = 40, 5, 9


class Tagger(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.tags = nn.Linear(2 * width, TAGS)

    def forward(self, words):
        states, _ = self.gru(self.embedding(words))
        return self.tags(self.dropout(states))


def sentences(count, generator):
    """A word's tag depends on the word and the one before it."""
    words = torch.randint(WORDS, (count, LENGTH), generator=generator)
    before = torch.roll(words, 1, dims=1)
    return words, (words + 2 * before) % TAGS


def loss_of(model, words, tags):
    return nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten())


@torch.no_grad()
def validate(model, words, tags):
    model.eval()
    loss = loss_of(model, words, tags).item()
    model.train()
    return loss


def train(options, folder):
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + 1)
    held_out = sentences(32, generator)
    model = Tagger(options.width, options.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    best, best_loss = None, float("inf")
    for step in range(options.steps):
        loss = loss_of(model, *sentences(options.batch_size, generator))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        print(f"step {step} loss {loss.item().hex()}", flush=True)
        if step % options.validate_every == options.validate_every - 1:
            held_out_loss = validate(model, *held_out)
            if held_out_loss < best_loss:
                best, best_loss = copy.deepcopy(model.state_dict()), held_out_loss
            torch.save(model.state_dict(), folder / "last.pt")
    torch.save(best, folder / "best.pt")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--validate-every", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        train(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
