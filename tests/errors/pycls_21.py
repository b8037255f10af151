"""PYCLS-21: what the data set hands out, it has changed in itself.

Source: facebookresearch/pycls#21 (also mindee/doctr#840). __getitem__ normalises and
flips the array that the data set holds instead of a copy: with a loader in the main
process each epoch sees images that were normalised once more than in the epoch
before. --fixed copies the image first.
"""

import argparse

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MEAN = numpy.array([0.12, 0.10, 0.14], dtype=numpy.float32)[:, None, None]
SD = numpy.array([0.80, 0.75, 0.85], dtype=numpy.float32)[:, None, None]


class Shapes(Dataset):
    """Three channels, four classes, by where the light comes from."""

    def __init__(self, count, copy, seed=0, train=True):
        draw = numpy.random.default_rng(seed)
        self.labels = draw.integers(4, size=count)
        self.images = draw.normal(0.1, 0.6, (count, 3, 12, 12)).astype(numpy.float32)
        for image, label in zip(self.images, self.labels):
            rows = slice(0, 6) if label < 2 else slice(6, 12)
            image[label % 2, rows] += 0.25
        self.copy = copy
        self.train = train

    def __len__(self):
        return len(self.labels)

    def prepare(self, image):
        image -= MEAN
        image /= SD
        if self.train and numpy.random.rand() < 0.5:
            image[...] = image[:, :, ::-1].copy()
        return image

    def __getitem__(self, index):
        image = self.images[index]
        if self.copy:
            image = image.copy()
        return torch.from_numpy(self.prepare(image)), int(self.labels[index])


class SmallResNet(nn.Module):
    def __init__(self, width=12, classes=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, stride=2))
        self.block = nn.Sequential(
            nn.GroupNorm(3, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(36 * width, classes))

    def forward(self, x):
        x = self.stem(x)
        return self.head((x + self.block(x)).relu())


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    numpy.random.seed(0)
    data = Shapes(192, copy=options.fixed)
    before = data.images.copy()
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=0)
    model = SmallResNet()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    step = 0
    while step < options.steps:
        for images, labels in loader:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    if options.prove:
        same = numpy.array_equal(before, data.images)
        print("fault shows:", "no" if same else "yes")


if __name__ == "__main__":
    main()
