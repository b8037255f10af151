"""Sorting line camera: which pasta shape is on the belt?"""
import argparse
import json
import math
import os
import random
import tempfile
import time
from typing import Dict, List

import torch
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader, Dataset

SHAPES = ["penne", "farfalle", "conchiglie", "rotelle", "orzo"]
SIZE = 20


def grid():
    line = torch.linspace(-1, 1, SIZE)
    return torch.meshgrid(line, line, indexing="ij")


def render(kind: int, g: torch.Generator) -> Tensor:
    """One grey image of a piece lying at random place and angle."""
    y, x = grid()
    u = torch.rand(5, generator=g)
    turn = float(u[0]) * math.pi
    x = x - float(u[1] - 0.5) * 0.5
    y = y - float(u[2] - 0.5) * 0.5
    a = x * math.cos(turn) + y * math.sin(turn)
    b = y * math.cos(turn) - x * math.sin(turn)
    scale = 0.85 + 0.3 * float(u[3])
    a, b = a / scale, b / scale
    far = (a**2 + b**2).sqrt()
    if kind == 0:
        piece = (a.abs() < 0.6) & ((b + 0.3 * a).abs() < 0.22)
    elif kind == 1:
        piece = (a.abs() < 0.6) & (b.abs() < 0.12 + 0.5 * a.abs())
    elif kind == 2:
        piece = (far < 0.55) & (a > -0.15)
    elif kind == 3:
        piece = ((far < 0.55) & (far > 0.35)) | (far < 0.13)
    else:
        piece = (a / 0.45) ** 2 + (b / 0.2) ** 2 < 1
    light = 0.5 + 0.5 * float(u[4])
    image = piece.float() * light + 0.25 * x
    return image + 0.2 * torch.randn(SIZE, SIZE, generator=g)


class BeltImages(Dataset):
    def __init__(self, count: int, seed: int, flip: bool = False):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(len(SHAPES), (count,), generator=g)
        self.images = torch.stack([render(int(k), g) for k in self.labels])
        self.flip = flip

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int):
        image = self.images[i]
        if self.flip and random.random() < 0.5:
            image = image.flip(-1)
        return image.unsqueeze(0), self.labels[i]


class PastaNet(nn.Module):
    def __init__(self, channels: List[int] = [12, 24, 32]):
        super().__init__()
        stages, previous = [], 1
        for c in channels:
            stages += [
                nn.Conv2d(previous, c, 3, padding=1, bias=False),
                nn.BatchNorm2d(c),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
            previous = c
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(previous * (SIZE // 8) ** 2, 48),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(48, len(SHAPES)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.stages(x))


class Experiment:
    def __init__(self, args: argparse.Namespace, folder: str):
        self.args = args
        self.folder = folder
        self.train_loader = DataLoader(
            BeltImages(800, seed=50, flip=True), args.batch_size, shuffle=True
        )
        self.valid_loader = DataLoader(BeltImages(300, seed=51), 150)
        self.model = PastaNet()
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.optimizer = optim.SGD(
            self.model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4
        )
        self.scheduler = optim.lr_scheduler.StepLR(self.optimizer, 6, gamma=0.2)
        self.history: List[Dict[str, float]] = []
        self.updates = 0

    def train_one_epoch(self) -> float:
        total = 0.0
        for images, labels in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            self.updates += 1
            total += loss.item() * labels.numel()
        return total / len(self.train_loader.dataset)

    @torch.no_grad()
    def validate(self) -> Dict[str, float]:
        self.model.eval()
        loss, hits = 0.0, 0
        for images, labels in self.valid_loader:
            scores = self.model(images)
            loss += self.criterion(scores, labels).item() * labels.numel()
            hits += int((scores.argmax(1) == labels).sum())
        n = len(self.valid_loader.dataset)
        return {"valid_loss": loss / n, "accuracy": hits / n}

    def save(self, name: str) -> None:
        torch.save(self.model.state_dict(), os.path.join(self.folder, name))

    def fit(self) -> None:
        best = 0.0
        for epoch in range(self.args.epochs):
            started = time.time()
            if self.args.fixed:
                self.model.train()
            record = {"epoch": epoch, "train_loss": self.train_one_epoch()}
            record.update(self.validate())
            self.scheduler.step()
            self.history.append(record)
            if record["accuracy"] > best:
                best = record["accuracy"]
                self.save("best.pt")
            print(
                "epoch {epoch} train {train_loss:.4f} valid {valid_loss:.4f} "
                "accuracy {accuracy:.3f}".format(**record),
                f"({time.time() - started:.1f}s)",
            )
        with open(os.path.join(self.folder, "history.json"), "w") as handle:
            json.dump(self.history, handle, indent=1)
        print(f"best accuracy {best:.3f}")


def prove(experiment: Experiment) -> None:
    """Batch norm counts the batches it has seen in training."""
    seen = min(
        int(m.num_batches_tracked)
        for m in experiment.model.modules()
        if isinstance(m, nn.BatchNorm2d)
    )
    print(f"updates {experiment.updates}, batches in the running statistics {seen}")
    print("fault shows:", "yes" if seen < experiment.updates else "no")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    options = parse()
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    with tempfile.TemporaryDirectory() as workdir:
        run = Experiment(options, workdir)
        run.fit()
        if options.prove:
            prove(run)
