"""Grades glazed tiles (sound, crazed, pinholed, crawled) from small colour pictures."""

import argparse
import json
import logging
import os
import sys
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

GRADES = ["sound", "crazed", "pinholed", "crawled"]
SIDE = 16

logger = logging.getLogger("glaze")


def setup_logging():
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(levelname).1s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def fire_tiles(count, seed):
    g = torch.Generator().manual_seed(seed)
    grades = torch.randint(4, (count,), generator=g)
    colour = 0.3 + 0.5 * torch.rand(count, 3, 1, 1, generator=g)
    shade = torch.randn(count, 1, 4, 4, generator=g) * 0.08
    shade = F.interpolate(shade, SIDE, mode="bilinear", align_corners=False)
    pictures = colour + shade.expand(count, 3, SIDE, SIDE)
    line = torch.arange(SIDE).float()
    depth = 0.12 + 0.2 * torch.rand(count, generator=g)
    for n in range(count):
        if grades[n] == 1:
            for _ in range(3):
                a, b = torch.randn(2, generator=g)
                offset = torch.rand(1, generator=g) * SIDE
                away = a * line[:, None] + b * line[None] - (a + b) * offset
                crack = (away.abs() / (a.abs() + b.abs()) < 0.6).float()
                pictures[n] -= depth[n] * crack
        elif grades[n] == 2:
            holes = (torch.rand(SIDE, SIDE, generator=g) < 0.05).float()
            pictures[n] -= 1.3 * depth[n] * holes
        elif grades[n] == 3:
            y, x = torch.rand(2, generator=g) * SIDE
            patch = ((line[:, None] - y) ** 2 + (line[None] - x) ** 2) < 12
            pictures[n] += depth[n] * patch.float()
    pictures = pictures + 0.06 * torch.randn(pictures.shape, generator=g)
    return pictures, grades


def conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1),
    )


class GlazeNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.first = conv(3, width)
        self.second = conv(width, 2 * width)
        self.third = conv(2 * width, 2 * width)
        self.pool = nn.MaxPool2d(2)
        self.classifier = nn.Linear(4 * width, len(GRADES))

    def forward(self, pictures):
        h = self.pool(self.first(pictures))
        h = self.pool(self.second(h))
        h = self.third(h)
        return self.classifier(torch.cat([h.mean((2, 3)), h.amax((2, 3))], 1))


def accuracy_of(model, loader):
    model.eval()
    hits = loss = seen = 0
    with torch.no_grad():
        for pictures, grades in loader:
            logits = model(pictures)
            loss += F.cross_entropy(logits, grades, reduction="sum").item()
            hits += (logits.argmax(1) == grades).sum().item()
            seen += len(grades)
    return hits / seen, loss / seen


def run(options, folder):
    torch.manual_seed(options.seed)
    train = TensorDataset(*fire_tiles(1200, 10 * options.seed + 1))
    valid = TensorDataset(*fire_tiles(400, 10 * options.seed + 2))
    shuffle = torch.Generator().manual_seed(options.seed)
    train_loader = DataLoader(train, options.batch, shuffle=True, generator=shuffle)
    valid_loader = DataLoader(valid, 200)

    model = GlazeNet()
    optimizer = torch.optim.SGD(
        model.parameters(), options.lr, momentum=0.9, weight_decay=5e-4
    )
    scheduler = ReduceLROnPlateau(
        optimizer,
        mode="max" if options.fixed else "min",
        factor=0.2,
        patience=options.patience,
    )
    history = []
    for epoch in range(options.epochs):
        model.train()
        total = 0.0
        for pictures, grades in train_loader:
            flip = torch.rand(len(pictures)) < 0.5
            pictures = torch.where(
                flip[:, None, None, None], pictures.flip(3), pictures
            )
            loss = F.cross_entropy(model(pictures), grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(grades)
        accuracy, valid_loss = accuracy_of(model, valid_loader)
        rate = optimizer.param_groups[0]["lr"]
        scheduler.step(accuracy)
        history.append(
            dict(
                epoch=epoch,
                lr=rate,
                train=total / len(train),
                valid=valid_loss,
                accuracy=accuracy,
            )
        )
        logger.info(
            "epoch %02d lr %.5f train %.4f valid %.4f accuracy %.4f",
            epoch,
            rate,
            total / len(train),
            valid_loss,
            accuracy,
        )
    torch.save(model.state_dict(), os.path.join(folder, "glaze.pt"))
    with open(os.path.join(folder, "history.json"), "w") as stream:
        json.dump(history, stream)
    best = max(history, key=lambda row: row["accuracy"])
    logger.info("best accuracy %.4f in epoch %d", best["accuracy"], best["epoch"])


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--patience", type=int, default=1)
    parser.add_argument("--fixed", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    setup_logging()
    with tempfile.TemporaryDirectory() as workdir:
        run(parse_options(), workdir)
