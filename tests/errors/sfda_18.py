"""SFDA-18: a layer that should be frozen goes on training.

Source: CSCYQJ/MICCAI23-ProtoContra-SFDA#18. For the adaptation to another hospital's
images the last layer is to stay what the source data made of it. requires_grad is
set on the module, where it is an attribute that nobody reads, and not on the
module's parameters. --fixed calls requires_grad_(False).
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class SegmentationNet(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.inc = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU())
        self.down = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU()
        )
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.outc = nn.Conv2d(width, classes, 1)

    def forward(self, image):
        fine = self.inc(image)
        return self.outc(self.up(self.down(fine)) + fine)


def organs(count, contrast):
    """Images with a disc and a bar; a scanner's contrast and noise."""
    grid = torch.arange(16.0)
    cx, cy = 4 + 8 * torch.rand(2, count, 1, 1)
    disc = (grid - cx) ** 2 + (grid[:, None] - cy) ** 2 < 9
    row = torch.randint(16, (count, 1, 1))
    bar = (grid[:, None] - row).abs().expand(count, 16, 16) < 1
    mask = torch.where(disc, 1, torch.where(bar, 2, 0))
    image = contrast * mask.float() + 0.25 * torch.randn(mask.shape)
    return image[:, None], mask


def train_source(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        image, mask = organs(16, contrast=1.0)
        loss = F.cross_entropy(model(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"source step {step} loss {loss.item():.4f}", flush=True)


def adapt(model, steps, freeze):
    freeze(model.outc)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(steps):
        image, _ = organs(16, contrast=0.7)
        logits = model(image)
        shifted = model(torch.roll(image, 2, dims=3))
        probabilities = logits.softmax(1)
        entropy = -(probabilities * logits.log_softmax(1)).sum(1).mean()
        agree = F.mse_loss(shifted.softmax(1), torch.roll(probabilities, 2, dims=3))
        loss = entropy + 5 * agree
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"target step {step} loss {loss.item():.4f}", flush=True)


def freeze_by_attribute(module):
    module.requires_grad = False


def freeze_parameters(module):
    module.requires_grad_(False)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=32)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = SegmentationNet()
    half = options.steps // 2
    train_source(model, half)
    before = model.outc.weight.detach().clone()
    freeze = freeze_parameters if options.fixed else freeze_by_attribute
    adapt(model, options.steps - half, freeze)
    if options.prove:
        moved = not torch.equal(before, model.outc.weight)
        print("fault shows:", "yes" if moved else "no")


if __name__ == "__main__":
    main()
