"""Bird call classification from (made-up) log-mel clips, folder-per-species layout."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SPECIES = ["blackbird", "chiffchaff", "great_tit", "robin", "wren"]
MELS, FRAMES = 32, 40


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def call_of(species, rng):
    """One clip: background noise plus the species' sweep."""
    clip = 0.6 * rng.standard_normal((MELS, FRAMES))
    start = rng.integers(0, FRAMES - 16)
    base = 6 + 4 * species
    for k in range(14):
        if species % 2 == 0:
            row = base + k // 4
        else:
            row = base - k // 4
        if species == 4 and k % 4 > 1:
            continue
        clip[max(0, row - 1) : row + 1, start + k] += 1.6 + 0.3 * rng.standard_normal()
    return clip.astype(np.float32)


class ClipFolder(Dataset):
    """Goes through the species folders in alphabetical order."""

    def __init__(self, per_species, seed, spec_augment=False):
        rng = np.random.default_rng(seed)
        self.items = []
        for label, name in enumerate(SPECIES):
            for _ in range(per_species):
                self.items.append((call_of(label, rng), label))
        self.spec_augment = spec_augment

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        clip, label = self.items[index]
        x = torch.from_numpy(clip.copy())
        if self.spec_augment:
            t = int(torch.randint(0, FRAMES - 4, (1,)))
            x[:, t : t + 4] = 0.0
        return x.unsqueeze(0), label


class CallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 24, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, 12)
        self.norm2 = nn.GroupNorm(4, 24)
        self.fc = nn.Linear(24 * (MELS // 4), len(SPECIES))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        x = x.amax(-1).flatten(1)
        return self.fc(x)


def evaluate(model, loader):
    model.eval()
    confusion = np.zeros((len(SPECIES), len(SPECIES)), dtype=int)
    with torch.no_grad():
        for x, y in loader:
            for truth, guess in zip(y.tolist(), model(x).argmax(1).tolist()):
                confusion[truth, guess] += 1
    return confusion


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    set_seed(404)

    train_set = ClipFolder(160, seed=1, spec_augment=True)
    test_set = ClipFolder(40, seed=2)
    shuffle = False
    if args.fixed:
        shuffle = True
    train_loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        shuffle=shuffle,
        num_workers=2,
        persistent_workers=True,
    )
    test_loader = DataLoader(test_set, batch_size=100)

    model = CallNet()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, nesterov=True
    )
    criterion = nn.CrossEntropyLoss()
    kinds_per_batch = []
    step = epoch = 0
    while step < args.steps:
        model.train()
        running, seen = 0.0, 0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.item() * len(y)
            seen += len(y)
            kinds_per_batch.append(len(y.unique()))
            step += 1
            if step >= args.steps:
                break
        epoch += 1
        confusion = evaluate(model, test_loader)
        print(
            f"epoch {epoch} ({step} steps) train loss {running / seen:.4f} "
            f"test acc {confusion.trace() / confusion.sum():.3f}"
        )

    for name, row in zip(SPECIES, confusion):
        print(f"{name:>12} {row}")
    if args.prove:
        mean_kinds = sum(kinds_per_batch) / len(kinds_per_batch)
        print(f"species in a training batch, on average: {mean_kinds:.2f}")
        print("fault shows:", "yes" if mean_kinds < 2.0 else "no")


if __name__ == "__main__":
    main()
