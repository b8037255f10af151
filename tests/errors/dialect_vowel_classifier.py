"""
Dialect identification from vowel formants.

Recordings come as (formant vector, dialect name); speakers are split into a
training and a validation group. The learning rate follows the validation
accuracy and the best epoch is kept.
"""
import argparse
import copy
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

DIALECTS = [
    "Ashby",
    "Borders",
    "Cumbria",
    "Dorset",
    "Essex",
    "Fife",
    "Galloway",
    "Humber",
]
PLACE = {
    name: np.random.default_rng(500 + k).normal(0, 0.85, size=12)
    for k, name in enumerate(DIALECTS)
}


def record_speakers(n_speakers, names, seed, takes=24):
    rng = np.random.default_rng(seed)
    rows = []
    for s in range(n_speakers):
        name = names[s % len(names)]
        voice = rng.normal(0, 0.45, size=12)
        for _ in range(takes):
            vec = PLACE[name] + voice + rng.normal(0, 0.8, size=12)
            rows.append((vec.astype(np.float32), name))
    return rows


class Vocabulary:
    """Name <-> index."""

    def __init__(self, names):
        self.names = sorted(set(names))
        self.index = {n: i for i, n in enumerate(self.names)}

    def __call__(self, name):
        return self.index[name]

    def __len__(self):
        return len(self.names)


class VowelData(Dataset):
    def __init__(self, rows, vocabulary=None):
        self.vocabulary = vocabulary or Vocabulary(name for _, name in rows)
        self.x = torch.from_numpy(np.stack([v for v, _ in rows]))
        self.y = torch.tensor([self.vocabulary(name) for _, name in rows])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class DialectNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(12, 64),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Linear(64, 64),
            nn.GELU(),
            nn.Linear(64, classes),
        )

    def forward(self, x):
        return self.layers(x)


def accuracy(model, loader):
    model.eval()
    ok = n = 0
    with torch.no_grad():
        for x, y in loader:
            ok += (model(x).argmax(1) == y).sum().item()
            n += len(y)
    return ok / n


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=15)
    ap.add_argument("--batch-size", type=int, default=48)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    random.seed(3)
    torch.manual_seed(3)
    train_rows = record_speakers(48, DIALECTS, seed=20)
    present = [n for n in DIALECTS if n != "Dorset"]
    val_rows = record_speakers(21, present, seed=21)

    train_set = VowelData(train_rows)
    val_set = VowelData(val_rows, train_set.vocabulary if args.fixed else None)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, 256)
    print(
        f"{len(train_set)} training and {len(val_set)} validation recordings, "
        f"{len(train_set.vocabulary)} dialects"
    )

    model = DialectNet(len(train_set.vocabulary))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.5, patience=1
    )
    criterion = nn.CrossEntropyLoss()

    best, best_state = -1.0, None
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
        acc = accuracy(model, val_loader)
        plateau.step(acc)
        if acc > best:
            best, best_state = acc, copy.deepcopy(model.state_dict())
        print(
            f"epoch {epoch:2d}  loss {total / len(train_set):.4f}  val accuracy {acc:.4f}  "
            f"lr {optimizer.param_groups[0]['lr']:.1e}"
        )

    model.load_state_dict(best_state)
    print(f"best validation accuracy {best:.4f}")

    if args.prove:
        model.eval()
        with torch.no_grad():
            guess = model(val_set.x).argmax(1)
        by_name = np.mean(
            [
                train_set.vocabulary.names[g] == name
                for g, (_, name) in zip(guess.tolist(), val_rows)
            ]
        )
        by_index = (guess == val_set.y).float().mean().item()
        print(f"validation accuracy by name {by_name:.4f}, by index {by_index:.4f}")
        print("fault shows:", "yes" if abs(by_name - by_index) > 1e-6 else "no")


if __name__ == "__main__":
    main()
