"""Embeddings of sea shells from unlabelled photographs.

Two random views of each shell are pulled together and all other shells of the batch are
pushed away.  The embedding is judged by a nearest-neighbour vote over the few shells
that a curator has named.
"""

import argparse
import logging
import math
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("shells")

SIDE = 20
SPECIES = 12


@dataclass
class Settings:
    epochs: int = 9
    batch: int = 96
    lr: float = 2e-3
    temperature: float = 0.1
    neighbours: int = 7
    seed: int = 0
    fixed: bool = False


def paint_shells(count, generator):
    """Fans of ridges: the species sets the number of ridges, the spread and the coil."""
    species = torch.randint(SPECIES, (count,), generator=generator)
    ys, xs = torch.meshgrid(
        torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij"
    )
    radius = (xs**2 + ys**2).sqrt()
    angle = torch.atan2(ys, xs)
    ridges = 2.0 + (species % 4).float()
    coil = 1.5 * (species // 4).float()
    turn = torch.rand(count, generator=generator) * 2 * math.pi
    size = 0.8 + 0.3 * torch.rand(count, generator=generator)
    phase = (
        ridges[:, None, None] * angle
        + coil[:, None, None] * 2 * radius
        + turn[:, None, None]
    )
    shells = 0.5 + 0.5 * torch.sin(phase)
    shells = shells * torch.sigmoid(12 * (size[:, None, None] - radius))
    shells = shells + 0.15 * torch.randn(count, SIDE, SIDE, generator=generator)
    return shells[:, None], species


class ShellDrawer(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.photos, self.species = paint_shells(count, generator)

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        return self.photos[index], self.species[index]


class Views:
    """Random turn, shift, lamp brightness and dust on a whole batch at a time."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def _rand(self, *shape):
        return torch.rand(*shape, generator=self.generator)

    def __call__(self, photos):
        count = len(photos)
        turn = (self._rand(count) - 0.5) * 1.2
        zoom = 0.85 + 0.3 * self._rand(count)
        cos, sin = torch.cos(turn) * zoom, torch.sin(turn) * zoom
        shift = (self._rand(count, 2) - 0.5) * 0.3
        theta = torch.stack(
            [
                torch.stack([cos, -sin, shift[:, 0]], 1),
                torch.stack([sin, cos, shift[:, 1]], 1),
            ],
            1,
        )
        grid = F.affine_grid(theta, photos.shape, align_corners=False)
        moved = F.grid_sample(photos, grid, align_corners=False)
        lamp = 0.6 + 0.8 * self._rand(count, 1, 1, 1)
        dust = torch.randn(photos.shape, generator=self.generator) * 0.1
        return moved * lamp + dust


class ShellEncoder(nn.Module):
    def __init__(self, width=24, features=64, projection=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 25, features),
        )
        self.projector = nn.Sequential(
            nn.ReLU(), nn.Linear(features, features), nn.ReLU()
        )
        self.out = nn.Linear(features, projection)

    def forward(self, photos):
        features = self.body(photos)
        return features, F.normalize(self.out(self.projector(features)), dim=1)


class PairLoss(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings

    def forward(self, first, second):
        count = len(first)
        both = torch.cat([first, second])
        similarity = both @ both.T / self.settings.temperature
        if self.settings.fixed:
            similarity = similarity.masked_fill(
                torch.eye(2 * count, dtype=torch.bool), float("-inf")
            )
        partner = torch.arange(2 * count).roll(count)
        return F.cross_entropy(similarity, partner)


@torch.no_grad()
def embed(model, drawer):
    model.eval()
    features, projected = [], []
    for photos, _ in DataLoader(drawer, 200):
        f, p = model(photos)
        features.append(F.normalize(f, dim=1))
        projected.append(p)
    model.train()
    return torch.cat(features), torch.cat(projected)


def neighbour_vote(model, named, held_out, neighbours):
    gallery, _ = embed(model, named)
    queries, projected = embed(model, held_out)
    nearest = (queries @ gallery.T).topk(neighbours, dim=1).indices
    votes = F.one_hot(named.species[nearest], SPECIES).sum(1)
    hits = (votes.argmax(1) == held_out.species).float().mean().item()
    distance = torch.pdist(projected).pow(2)
    spread = distance.mul(-2).exp().mean().log().item()
    return hits, spread


@torch.no_grad()
def recognise(model, drawer, seed):
    """How often a second view of a shell lies nearest to the first one."""
    views = Views(seed)
    model.eval()
    _, first = model(views(drawer.photos))
    _, second = model(views(drawer.photos))
    model.train()
    nearest = (second @ first.T).argmax(1)
    return (nearest == torch.arange(len(drawer))).float().mean().item()


def train(settings):
    torch.manual_seed(settings.seed)
    unlabelled = ShellDrawer(1440, settings.seed + 100)
    named = ShellDrawer(240, settings.seed + 200)
    held_out = ShellDrawer(400, settings.seed + 300)
    views = Views(settings.seed + 400)
    loader = DataLoader(
        unlabelled,
        settings.batch,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(settings.seed),
    )
    model = ShellEncoder()
    criterion = PairLoss(settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, settings.epochs * len(loader)
    )
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(settings.epochs):
            running = 0.0
            for photos, _ in loader:
                _, first = model(views(photos))
                _, second = model(views(photos))
                loss = criterion(first, second)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                scheduler.step()
                running += loss.item()
            hits, spread = neighbour_vote(model, named, held_out, settings.neighbours)
            log.info(
                "epoch %d pair loss %.4f neighbour accuracy %.3f spread %.2f",
                epoch + 1,
                running / len(loader),
                hits,
                spread,
            )
            torch.save(model.state_dict(), os.path.join(folder, f"shells{epoch}.pt"))
    again = recognise(model, held_out, settings.seed + 500)
    log.info("held-out shells recognised from another view %.3f", again)
    return hits


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--temperature", type=float, default=Settings.temperature)
    parser.add_argument("--lr", type=float, default=Settings.lr)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    return Settings(**vars(parser.parse_args()))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    train(parse())
