"""Languages of made-up names (GRU): a batch sampler of its own.

Names of one length form a batch, so that nothing is padded; the order within a length
and that of the batches are drawn anew in each epoch.
"""

import argparse
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()

random.seed(7)
torch.manual_seed(7)
VOWELS, LETTERS = range(5), 20


def name(language):
    length = random.randint(3, 7)
    vowels = random.Random(language).sample(VOWELS, 2)
    return [
        random.choice(vowels) if place % 2 else random.randrange(5, LETTERS)
        for place in range(length)
    ]


class Names(Dataset):
    def __init__(self, count):
        self.rows = [(name(i % 3), i % 3) for i in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        letters, language = self.rows[index]
        return torch.tensor(letters), torch.tensor(language)


class OneLength:
    def __init__(self, names, size):
        self.names, self.size = names, size

    def __iter__(self):
        by_length = {}
        order = list(range(len(self.names)))
        random.shuffle(order)
        for index in order:
            by_length.setdefault(len(self.names.rows[index][0]), []).append(index)
        batches = [
            rows[first : first + self.size]
            for rows in by_length.values()
            for first in range(0, len(rows) - self.size + 1, self.size)
        ]
        random.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return len(self.names) // self.size


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 16)
        self.read = nn.GRU(16, 32, batch_first=True)
        self.language = nn.Linear(32, 3)

    def forward(self, names):
        return self.language(self.read(self.letters(names))[1][-1])


names = Names(900)
loader = DataLoader(names, batch_sampler=OneLength(names, 16))
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(options.epochs):
    total = 0.0
    for letters, language in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(letters), language)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total)
