"""ADAINT-12: the initialisation comes after the pretrained weights and wipes them.

Source: ImCharlesY/AdaInt#12 (also zshn25/DINOv2_mmseg#1). The constructor loads a
backbone of another training; then init_weights() goes over all modules, the backbone
among them. The model trains, from random filters. --fixed initialises only the
heads that are new.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F


def make_backbone(width=8):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )


def publish(path):
    """Stands for a download: filters that average, and that find edges."""
    backbone = make_backbone()
    smooth = torch.tensor([1.0, 2.0, 1.0]).outer(torch.tensor([1.0, 2.0, 1.0])) / 16
    slope = torch.tensor([1.0, 2.0, 1.0]).outer(torch.tensor([-1.0, 0.0, 1.0])) / 8
    with torch.no_grad():
        for layer in (backbone[0], backbone[3]):
            layer.bias.zero_()
            for i, filters in enumerate(layer.weight):
                filters.zero_()
                kind = (smooth, slope, slope.T)[i % 3]
                filters[i % len(filters)] = kind if i % 2 else -kind
                filters[(i + 1) % len(filters)] += kind
    torch.save(backbone.state_dict(), path)


class Enhancer(nn.Module):
    """Mixes a few basis curves with weights that it predicts from the image."""

    def __init__(self, pretrained, keep_backbone, curves=3, points=9):
        super().__init__()
        self.backbone = make_backbone()
        self.backbone.load_state_dict(torch.load(pretrained))
        self.weights = nn.Linear(64, curves)
        self.basis = nn.Linear(curves, 3 * points)
        self.points = points
        self.init_weights(keep_backbone)

    def init_weights(self, keep_backbone):
        new = [self.weights, self.basis] if keep_backbone else self.modules()
        for module in new:
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, image):
        curve = self.basis(self.weights(self.backbone(image)))
        curve = curve.unflatten(1, (3, self.points))
        place = image.clamp(0, 1) * (self.points - 1)
        low = place.floor().clamp(max=self.points - 2)
        flat = low.long().flatten(2)
        left = curve.gather(2, flat).view_as(image)
        right = curve.gather(2, flat + 1).view_as(image)
        return image + left + (place - low) * (right - left)


def photographs(count):
    """Dark or pale pictures, and how they are after they were retouched."""
    good = F.interpolate(torch.rand(count, 3, 4, 4), size=16, mode="bilinear")
    gamma = 0.5 + 1.5 * torch.rand(count, 1, 1, 1)
    return good**gamma, good


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "backbone.pth")
        publish(path)
        model = Enhancer(path, keep_backbone=options.fixed)
        published = torch.load(path)
    kept = torch.equal(model.backbone[0].weight, published["0.weight"])
    optimizer = torch.optim.Adam(
        [
            {"params": model.backbone.parameters(), "lr": 1e-4},
            {"params": model.weights.parameters()},
            {"params": model.basis.parameters()},
        ],
        lr=5e-3,
    )
    for step in range(options.steps):
        image, target = photographs(16)
        loss = F.mse_loss(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        print("fault shows:", "no" if kept else "yes")


if __name__ == "__main__":
    main()
