"""Leaf species on herbarium sheets whose old labels confuse neighbouring species.

Two stages after Patrini et al. (2017). Stage one trains on the labels as they are and
reads a label transition matrix off the most confident sheets. Stage two trains a fresh
network whose class probabilities are pushed through that matrix before they meet the
labels, so the network itself learns the species behind the labels.
"""

import argparse
import copy
import logging
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

logger = logging.getLogger("herbarium")
SPECIES, ANGLES = 5, 64


def outline(species, rng):
    """Radius of the leaf margin around its centre."""
    theta = np.linspace(0, 2 * np.pi, ANGLES, endpoint=False)
    lobes = (3, 5, 7, 4, 6)[species]
    depth = (0.20, 0.16, 0.12, 0.24, 0.14)[species] * rng.uniform(0.7, 1.3)
    stretch = (0.30, 0.10, 0.05, 0.20, 0.35)[species] + rng.normal(0, 0.04)
    turn = rng.normal(0, 0.25)
    radius = 1 + depth * np.cos(lobes * (theta - turn)) + stretch * np.cos(2 * theta)
    teeth = rng.uniform(0, 0.05) * np.cos(20 * theta + rng.uniform(0, 6))
    return radius + teeth + rng.normal(0, 0.09, ANGLES)


def sheets(count, flip, rng):
    species = rng.integers(0, SPECIES, count)
    shape = np.stack([outline(s, rng) for s in species])
    mixed_up = rng.random(count) < flip
    label = np.where(mixed_up, (species + 1) % SPECIES, species)
    return (
        torch.tensor(shape[:, None], dtype=torch.float32),
        torch.tensor(label),
        torch.tensor(species),
    )


class LeafNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(1, width, 7, padding=3, padding_mode="circular", bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, width, 5, padding=2, padding_mode="circular", bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Flatten(),
            nn.Dropout(0.3),
        )
        self.out = nn.Linear(width * ANGLES // 8, SPECIES)

    def forward(self, shape):
        return self.out(self.trunk(shape))


class PlainLoss(nn.Module):
    def forward(self, logits, label):
        return F.cross_entropy(logits, label)


class ForwardCorrectedLoss(nn.Module):
    """Cross entropy between labels and class probabilities seen through the matrix."""

    def __init__(self, transition):
        super().__init__()
        self.register_buffer("transition", transition)

    def forward(self, logits, label):
        seen = logits.softmax(dim=1) @ self.transition
        return F.nll_loss(seen.clamp(min=1e-7).log(), label)


def one_epoch(model, criterion, loader, optimizer):
    model.train()
    total = hits = count = 0
    for shape, label in loader:
        optimizer.zero_grad()
        logits = model(shape)
        loss = criterion(logits, label)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(label)
        hits += (logits.argmax(dim=1) == label).sum().item()
        count += len(label)
    return total / count, hits / count


@torch.no_grad()
def judge(model, criterion, loader):
    model.eval()
    total = hits = count = 0
    for shape, label in loader:
        logits = model(shape)
        total += criterion(logits, label).item() * len(label)
        hits += (logits.argmax(dim=1) == label).sum().item()
        count += len(label)
    return total / count, hits / count


def fit(stage, criterion, train, valid, checked, args):
    """Train a new network; the state with the lowest validation loss is returned."""
    model = LeafNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    best, kept = float("inf"), None
    for epoch in range(1, args.epochs + 1):
        train_loss, train_hits = one_epoch(model, criterion, train, optimizer)
        schedule.step()
        valid_loss, _ = judge(model, criterion, valid)
        if valid_loss < best:
            best, kept = valid_loss, copy.deepcopy(model.state_dict())
        logger.info(
            "%s %2d  loss %.4f  agreement with labels %.3f  valid %.4f",
            stage,
            epoch,
            train_loss,
            train_hits,
            valid_loss,
        )
    model.load_state_dict(kept)
    _, hits = judge(model, PlainLoss(), checked)
    logger.info("%s: accuracy on re-identified sheets %.3f", stage, hits)
    return model


@torch.no_grad()
def read_transition(model, shapes, quantile=0.97):
    """Rows of the matrix from the sheets that look most like each class."""
    model.eval()
    probability = torch.cat([model(part).softmax(dim=1) for part in shapes.split(200)])
    rows = []
    for species in range(SPECIES):
        bar = probability[:, species].quantile(quantile)
        rows.append(probability[probability[:, species] >= bar].mean(dim=0))
    matrix = torch.stack(rows)
    return matrix / matrix.sum(dim=1, keepdim=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--flip", type=float, default=0.35)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed + 900)

    shapes, labels, _ = sheets(2400, args.flip, rng)
    centre, scale = shapes[:2000].mean(), shapes[:2000].std()
    old = TensorDataset((shapes - centre) / scale, labels)
    new_shapes, _, new_species = sheets(600, args.flip, rng)
    checked = DataLoader(
        TensorDataset((new_shapes - centre) / scale, new_species), batch_size=200
    )
    train = DataLoader(
        Subset(old, range(2000)),
        batch_size=80,
        shuffle=True,
        generator=torch.Generator().manual_seed(args.seed),
    )
    valid = DataLoader(Subset(old, range(2000, 2400)), batch_size=200)

    first = fit("as labelled", PlainLoss(), train, valid, checked, args)
    transition = read_transition(first, old.tensors[0][:2000])
    for row in transition.tolist():
        logger.info("  %s", " ".join(f"{value:.2f}" for value in row))
    corrected = ForwardCorrectedLoss(transition)
    second = fit("corrected", corrected, train, valid, checked, args)
    with tempfile.TemporaryDirectory() as folder:
        bundle = {"net": second.state_dict(), "transition": transition}
        torch.save(bundle, Path(folder) / "leafnet.pt")


if __name__ == "__main__":
    main()
