"""Recognises symbols drawn with a pen from the path of its tip, of any length. The
sequences are packed and time-major; a batch is sorted, longest first, and the last
state of each direction is what gets classified.

    python pen_strokes.py --steps 28
"""

import argparse
import math

import torch
from torch import nn
from torch.nn.utils import rnn as rnn_utils
from torch.utils.data import DataLoader, Dataset, random_split

SYMBOLS = {
    "circle": lambda t: (torch.cos(2 * math.pi * t), torch.sin(2 * math.pi * t)),
    "eight": lambda t: (torch.sin(2 * math.pi * t), torch.sin(4 * math.pi * t)),
    "zigzag": lambda t: (2 * t - 1, 2 * ((4 * t) % 1 - 0.5).abs() - 0.5),
    "spiral": lambda t: (t * torch.cos(9 * t), t * torch.sin(9 * t)),
    "tick": lambda t: (2 * t - 1, (t - 0.3).abs() * 2 - 0.5),
}


class Strokes(Dataset):
    """Offsets between neighbouring points of the path; hands are quick or slow."""

    def __init__(self, amount):
        self.samples = []
        draw = torch.Generator().manual_seed(2024)
        for number in range(amount):
            label = number % len(SYMBOLS)
            points = int(torch.randint(12, 48, (1,), generator=draw))
            t = torch.linspace(0, 1, points)
            x, y = list(SYMBOLS.values())[label](t)
            tilt, size = torch.rand(2, generator=draw).tolist()
            tilt, size = 0.6 * (tilt - 0.5), 0.7 + 0.6 * size
            x, y = (
                size * (x * math.cos(tilt) - y * math.sin(tilt)),
                size * (x * math.sin(tilt) + y * math.cos(tilt)),
            )
            path = torch.stack([x, y], 1)
            path = path + 0.02 * torch.randn(points, 2, generator=draw)
            steps = path.diff(dim=0) * 10
            speed = steps.norm(dim=1, keepdim=True)
            self.samples.append((torch.cat([steps, speed], 1), label))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def longest_first(batch):
    batch.sort(key=lambda sample: -len(sample[0]))
    paths = [path for path, _ in batch]
    labels = torch.tensor([label for _, label in batch])
    return rnn_utils.pack_sequence(paths), labels


class StrokeReader(nn.Module):
    def __init__(self, features: int, hidden: int, classes: int):
        super().__init__()
        self.lift = nn.Linear(features, hidden)
        self.lstm = nn.LSTM(hidden, hidden, bidirectional=True)
        self.drop = nn.Dropout(0.2)
        self.classify = nn.Linear(2 * hidden, classes)

    def forward(self, packed: rnn_utils.PackedSequence) -> torch.Tensor:
        # the linear layer works on the data of the packed sequence: no padding at all
        lifted = packed._replace(data=torch.tanh(self.lift(packed.data)))
        _, (last, _) = self.lstm(lifted)
        forth, back = last  # each (batch, hidden)
        return self.classify(self.drop(torch.cat([forth, back], dim=1)))


def train_epoch(model, loader, optimizer, loss_function, budget):
    model.train()
    total = seen = 0
    for packed, labels in loader:
        if budget == 0:
            break
        optimizer.zero_grad()
        loss = loss_function(model(packed), labels)
        loss.backward()
        optimizer.step()
        total, seen, budget = total + loss.item(), seen + 1, budget - 1
    return total / seen, budget


def accuracy(model, loader):
    model.eval()
    right = count = 0
    with torch.no_grad():
        for packed, labels in loader:
            right += (model(packed).argmax(1) == labels).sum()
            count += len(labels)
    return float(right) / count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=28)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    training, validation = random_split(Strokes(420), [320, 100])
    loaders = dict(
        train=DataLoader(training, 32, shuffle=True, collate_fn=longest_first),
        val=DataLoader(validation, 25, collate_fn=longest_first),
    )
    model = StrokeReader(3, 32, len(SYMBOLS))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss_function = nn.MultiMarginLoss()
    left, epoch = options.steps, 0
    while left:
        mean, left = train_epoch(
            model, loaders["train"], optimizer, loss_function, left
        )
        epoch += 1
        print(f"epoch {epoch}: {mean:.4f}, right {accuracy(model, loaders['val']):.2%}")
