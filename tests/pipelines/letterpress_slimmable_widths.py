"""Letterpress sorts recognised by one network that runs at any of several widths.

Universally slimmable training (Yu & Huang, 2019). A step runs the widest network on
the labels, then the narrowest and two random widths on the soft output of the widest,
and updates the shared weights once. The running statistics of batch norm fit one width
only, so they are measured anew on training images before a width is evaluated.
"""

import argparse
import json
import logging
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

log = logging.getLogger("letterpress")

FACE = {
    "E": ["11111", "10000", "11110", "10000", "11111"],
    "F": ["11111", "10000", "11110", "10000", "10000"],
    "H": ["10001", "10001", "11111", "10001", "10001"],
    "K": ["10010", "10100", "11000", "10100", "10010"],
    "N": ["10001", "11001", "10101", "10011", "10001"],
    "R": ["11110", "10001", "11110", "10010", "10001"],
    "S": ["01111", "10000", "01110", "00001", "11110"],
    "T": ["11111", "00100", "00100", "00100", "00100"],
}
LETTERS = list(FACE)


class Press:
    """Prints sorts with worn edges, uneven inking and crooked placing."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.plates = {
            letter: np.kron(
                np.array([[int(c) for c in row] for row in rows]), np.ones((2, 2))
            )
            for letter, rows in FACE.items()
        }

    def print_one(self, letter):
        rng = self.rng
        sheet = np.zeros((16, 16))
        top, left = rng.integers(1, 6, 2)
        plate = self.plates[letter] * (rng.random((10, 10)) > 0.12)
        sheet[top : top + 10, left : left + 10] = plate
        ink = rng.uniform(0.6, 1.1) + rng.normal(0, 0.03) * np.arange(16)[None]
        return sheet * ink + rng.normal(0, 0.35, sheet.shape)

    def batch(self, count):
        labels = self.rng.integers(0, len(LETTERS), count)
        sheets = np.stack([self.print_one(LETTERS[i]) for i in labels])
        return torch.tensor(sheets[:, None], dtype=torch.float32), torch.tensor(labels)


class SlimConv(nn.Conv2d):
    """Uses the leading part of its filters."""

    def forward(self, x, outputs):
        weight = self.weight[:outputs, : x.shape[1]]
        return F.conv2d(x, weight, self.bias[:outputs], self.stride, self.padding)


class SlimNorm(nn.BatchNorm2d):
    def forward(self, x):
        channels = x.shape[1]
        momentum = self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / self.num_batches_tracked.item()
        return F.batch_norm(
            x,
            self.running_mean[:channels],
            self.running_var[:channels],
            self.weight[:channels],
            self.bias[:channels],
            training=self.training,
            momentum=momentum,
            eps=self.eps,
        )


class SlimNet(nn.Module):
    def __init__(self, channels=(24, 32, 40)):
        super().__init__()
        self.channels = channels
        inputs = (1, *channels[:-1])
        self.convs = nn.ModuleList(
            SlimConv(a, b, 3, padding=1) for a, b in zip(inputs, channels)
        )
        self.norms = nn.ModuleList(SlimNorm(b) for b in channels)
        self.head = nn.Linear(channels[-1], len(LETTERS))

    def forward(self, x, width=1.0):
        for conv, norm, channels in zip(self.convs, self.norms, self.channels):
            x = F.max_pool2d(F.relu(norm(conv(x, max(4, int(width * channels))))), 2)
        x = x.mean(dim=(2, 3))
        return F.linear(x, self.head.weight[:, : x.shape[1]], self.head.bias)

    def cost(self, width):
        """Multiplications of the convolutions for one image."""
        total, side, inputs = 0, 16, 1
        for channels in self.channels:
            outputs = max(4, int(width * channels))
            total += 9 * inputs * outputs * side * side
            inputs, side = outputs, side // 2
        return total


@torch.no_grad()
def measure_statistics(model, images, width, size=100):
    """Running statistics of this width: plain averages over training images."""
    for norm in model.norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    for part in images.split(size):
        model(part, width)
    for norm in model.norms:
        norm.momentum = 0.1


@torch.no_grad()
def evaluate(model, images, labels, width):
    model.eval()
    logits = torch.cat([model(part, width) for part in images.split(200)])
    hits = (logits.argmax(dim=1) == labels).float().mean().item()
    return F.cross_entropy(logits, labels).item(), hits


def sandwich_step(model, optimizer, images, labels, widths):
    optimizer.zero_grad()
    logits = model(images, 1.0)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    taught = logits.detach().softmax(dim=1)
    for width in widths:
        F.cross_entropy(model(images, width), taught).backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--narrow", type=float, default=0.25)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(args.seed)
    dice = random.Random(args.seed)

    images, labels = Press([args.seed, 0]).batch(1280)
    held_images, held_labels = Press([args.seed, 1]).batch(480)
    calibration = images[:400]
    model = SlimNet()
    steps = len(images) // args.batch
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.05, total_steps=args.epochs * steps
    )
    for epoch in range(1, args.epochs + 1):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(images)).split(args.batch):
            widths = [args.narrow] + [dice.uniform(args.narrow, 1) for _ in range(2)]
            loss = sandwich_step(model, optimizer, images[rows], labels[rows], widths)
            schedule.step()
            total += loss * len(rows)
        line = f"epoch {epoch} widest on labels {total / len(images):.4f}"
        for width in (1.0, args.narrow):
            measure_statistics(model, calibration, width)
            loss, hits = evaluate(model, held_images, held_labels, width)
            line += f"  x{width:g}: held {loss:.4f} hits {hits:.3f}"
        log.info(line)

    table = []
    for width in (0.25, 0.4, 0.55, 0.7, 0.85, 1.0):
        measure_statistics(model, calibration, width)
        loss, hits = evaluate(model, held_images, held_labels, width)
        row = {"width": width, "cost": model.cost(width), "loss": loss, "hits": hits}
        table.append(row)
        log.info("%4.2f  %8d multiplications  hits %.3f", width, row["cost"], hits)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder) / "slim.pt")
        (Path(folder) / "widths.json").write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
