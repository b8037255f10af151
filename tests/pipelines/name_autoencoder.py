"""Squeezes names of villages into twenty-four numbers and spells them again. Input and
target are the same tensor; the space that fills a name up to its length is a letter
like any other (how long a name is has to come out right, too).

    python name_autoencoder.py --steps 30
"""

import argparse
import string

import numpy as np
import torch
from torch import nn

LETTERS = " " + string.ascii_lowercase
WIDTH = 12

STARTS = "ash birch clay dun elm fen grim hol kings long mill north oak".split()
MIDDLES = ["", "", "er", "ing", "s", "en"]
ENDS = "ham ton by ford ley wick field port".split()


def encode(name):
    return [LETTERS.index(c) for c in name.ljust(WIDTH)[:WIDTH]]


def decode(ids):
    return "".join(LETTERS[i] for i in ids).rstrip()


class NameAutoencoder(nn.Module):
    def __init__(self, code=24, channels=96):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 16)
        self.squeeze = nn.Sequential(
            nn.Conv1d(16, channels, 3, padding=1),
            nn.ELU(),
            nn.Conv1d(channels, channels, 4, stride=2, padding=1),
            nn.ELU(),
            nn.Flatten(),
            nn.Linear(channels * WIDTH // 2, code),
            nn.Tanh(),
        )
        self.unsqueeze = nn.Sequential(
            nn.Linear(code, channels * WIDTH // 2),
            nn.ELU(),
            nn.Unflatten(1, (channels, WIDTH // 2)),
            nn.ConvTranspose1d(channels, channels, 4, stride=2, padding=1),
            nn.ELU(),
            nn.Conv1d(channels, len(LETTERS), 1),
        )

    def forward(self, ids):
        code = self.squeeze(self.letters(ids).transpose(1, 2))
        return self.unsqueeze(code), code


def names():
    return [a + b + c for a in STARTS for b in sorted(set(MIDDLES)) for c in ENDS]


class Trainer:
    def __init__(self, args):
        rng = np.random.default_rng(args.seed)
        torch.manual_seed(args.seed)
        everything = torch.tensor([encode(n) for n in names()])
        everything = everything[torch.from_numpy(rng.permutation(len(everything)))]
        self.held_out, self.data = everything[:60], everything[60:]
        self.rng, self.args = rng, args
        self.model = NameAutoencoder()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def batch(self):
        return self.data[self.rng.choice(len(self.data), self.args.batch_size, False)]

    def step(self):
        ids = self.batch()
        scores, code = self.model(ids)
        spelling = nn.functional.cross_entropy(scores, ids)
        loss = spelling + 1e-3 * code.square().mean()
        self.model.zero_grad()
        loss.backward()
        self.optimizer.step()
        return spelling.item()

    def report(self, step, spelling):
        with torch.no_grad():  # nothing in the model depends on its mode
            guess = self.model(self.held_out)[0].argmax(1)
        letters = (guess == self.held_out).float().mean().item()
        whole = (guess == self.held_out).all(1).float().mean().item()
        pair = f"{decode(self.held_out[0])} -> {decode(guess[0])}"
        print(f"{step} {spelling:.4f} letters {letters:.3f} names {whole:.3f} {pair}")

    def between(self, one, other, stops=5):
        ids = torch.tensor([encode(one), encode(other)])
        with torch.no_grad():
            start, end = self.model(ids)[1]
            way = torch.linspace(0, 1, stops).unsqueeze(1)
            codes = torch.lerp(start, end, way)
            return [decode(g) for g in self.model.unsqueeze(codes).argmax(1)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    trainer = Trainer(args)
    for step in range(1, args.steps + 1):
        spelling = trainer.step()
        if step % 3 == 0:
            trainer.report(step, spelling)
    print(", ".join(trainer.between("ashford", "millingham")))
