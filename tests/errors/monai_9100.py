"""Cells on made-up slides: a small network that segments patches of each slide.

Slides are cut into a grid of patches; since the cutting (with its filter) is slow, a
part of the slides keeps its patches in memory. Project-MONAI/MONAI#9100.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SLIDE = 48
PATCH = 16


class Slides:
    """Round cells of random size and number on a background that varies by slide."""

    def __init__(self, count, seed):
        self.count = count
        self.seed = seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(1000 * self.seed + index)
        cells = 4 + int(torch.randint(8, (1,), generator=generator))
        places = SLIDE * torch.rand(cells, 2, generator=generator)
        radii = 2 + 4 * torch.rand(cells, generator=generator)
        grid = torch.stack(
            torch.meshgrid(torch.arange(SLIDE), torch.arange(SLIDE), indexing="ij"), -1
        ).float()
        away = (grid[:, :, None] - places).norm(dim=-1)
        mask = (away < radii).any(-1).float()
        contrast, light = torch.rand(2, generator=generator)
        image = light + (0.5 + contrast) * mask
        image = image + 0.3 * torch.randn(SLIDE, SLIDE, generator=generator)
        return torch.stack([image, mask])


def grid_patches(slide):
    for y in range(0, SLIDE, PATCH):
        for x in range(0, SLIDE, PATCH):
            yield slide[:, y : y + PATCH, x : x + PATCH], (y, x)


class GridPatchDataset(IterableDataset):
    """The patches of all slides, slide by slide, in a new order each epoch."""

    def __init__(self, slides, patches, cache_rate, transform=None, fixed=True):
        self.slides = slides
        self.patches = patches
        self.transform = transform
        self.fixed = fixed
        self.cached = {}
        self.seen = []
        for index in range(int(len(slides) * cache_rate)):
            self.cached[index] = list(patches(slides[index]))

    def emit(self, index, parts):
        for part, place in parts:
            self.seen.append((index, place, part.double().sum().item()))
            yield self.transform(part) if self.transform else part

    def __iter__(self):
        self.seen = []
        position = None
        for index in torch.randperm(len(self.slides)).tolist():
            if self.fixed:
                position = None
            if index in self.cached:
                position = index
            if position is not None:
                parts = self.cached[position]
            else:
                parts = self.patches(self.slides[index])
            yield from self.emit(index, parts)


def flip(part):
    if torch.rand(()) < 0.5:
        part = part.flip(-1)
    return part.flip(-2) if torch.rand(()) < 0.5 else part


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()

        def convs(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1), nn.InstanceNorm2d(o), nn.LeakyReLU(0.1)
            )

        self.enter = convs(1, width)
        self.down = nn.Conv2d(width, 2 * width, 2, stride=2)
        self.middle = convs(2 * width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.leave = convs(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        skip = self.enter(x)
        x = self.up(self.middle(self.down(skip)))
        return self.head(self.leave(torch.cat([x, skip], 1)))


def dice_loss(logits, mask):
    p = logits.sigmoid()
    overlap = (p * mask).sum((1, 2, 3))
    size = p.sum((1, 2, 3)) + mask.sum((1, 2, 3))
    return (1 - (2 * overlap + 1) / (size + 1)).mean()


@torch.no_grad()
def mean_dice(model, loader):
    model.eval()
    scores = [1 - dice_loss(model(part[:, :1]), part[:, 1:]).item() for part in loader]
    model.train()
    return sum(scores) / len(scores)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    slides = Slides(48, seed=1)
    train_set = GridPatchDataset(slides, grid_patches, 0.5, flip, options.fixed)
    loader = DataLoader(train_set, batch_size=18)
    valid_set = GridPatchDataset(Slides(12, seed=2), grid_patches, 0.0)
    valid = DataLoader(valid_set, batch_size=18)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    bce = nn.BCEWithLogitsLoss()
    step = 0
    while step < options.steps:
        for part in loader:
            if step == options.steps:
                break
            image, mask = part[:, :1], part[:, 1:]
            logits = model(image)
            loss = bce(logits, mask) + dice_loss(logits, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"dice {mean_dice(model, valid):.3f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "unet.pt"))
    if options.prove:
        wrong = 0
        for index, (y, x), total in train_set.seen:
            part = slides[index][:, y : y + PATCH, x : x + PATCH]
            wrong += abs(part.double().sum().item() - total) > 1e-6
        print(f"{wrong} of {len(train_set.seen)} patches of other slides", flush=True)
        print("fault shows:", "yes" if wrong else "no")


if __name__ == "__main__":
    main()
