"""TOSICA-11: the split has no effect, and the validation rows are trained.

Source: JackieHanLab/TOSICA#11. random_split gives two subsets, and the loaders are
made of subset.dataset, which is the whole data set: the model trains with the rows
that are to validate it, and the score is that of the training. --fixed gives the
subsets to the loaders.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Cells(Dataset):
    """Counts of genes and the type that somebody gave the cell."""

    def __init__(self, count=160, genes=60, types=6, seed=3):
        rng = np.random.default_rng(seed)
        profiles = rng.gamma(2.0, 1.0, (types, genes))
        types_of = rng.integers(types, size=count)
        self.counts = rng.poisson(profiles[types_of])
        mistaken = rng.random(count) < 0.25
        self.labels = np.where(mistaken, rng.integers(types, size=count), types_of)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        expression = np.log1p(self.counts[index]).astype(np.float32)
        return torch.from_numpy(expression), int(self.labels[index])


class PathwayNet(nn.Module):
    def __init__(self, genes=60, pathways=48, width=64, types=6):
        super().__init__()
        self.pathways = nn.Linear(genes, pathways)
        self.norm = nn.LayerNorm(pathways)
        self.hidden = nn.Linear(pathways, width)
        self.out = nn.Linear(width, types)

    def forward(self, expression):
        x = torch.relu(self.norm(self.pathways(expression)))
        return self.out(torch.relu(self.hidden(x)))


def make_loaders(cells, whole):
    generator = torch.Generator().manual_seed(1)
    train, valid = random_split(cells, [0.7, 0.3], generator=generator)
    if whole:
        train_data, valid_data = train.dataset, valid.dataset
    else:
        train_data, valid_data = train, valid
    train_loader = DataLoader(train_data, batch_size=28, shuffle=True, drop_last=True)
    return train_loader, DataLoader(valid_data, batch_size=64)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right, total = 0, 0
    for expression, labels in loader:
        right += (model(expression).argmax(1) == labels).sum().item()
        total += len(labels)
    model.train()
    return right / total


def rows_of(loader):
    return {tuple(row.tolist()) for expression, _ in loader for row in expression}


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train_loader, valid_loader = make_loaders(Cells(), whole=not options.fixed)
    model = PathwayNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss()
    step = 0
    while step < options.steps:
        for expression, labels in train_loader:
            if step == options.steps:
                break
            loss = criterion(model(expression), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"validation {evaluate(model, valid_loader):.3f}", flush=True)
    if options.prove:
        both = rows_of(train_loader) & rows_of(valid_loader)
        print("fault shows:", "yes" if both else "no")


if __name__ == "__main__":
    main()
