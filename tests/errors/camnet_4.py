"""CAMNET-4: each prediction is compared with the labels of the whole batch.

Source: dingmyu/CamNet#4 (also sktime/sktime#10931). A convolution predicts poses as
[batch, 3, 1, 1], the labels are [batch, 3], and their difference is broadcast to
[batch, 3, batch, 3]: the loss pairs all samples and all coordinates, falls, and
teaches a constant. --fixed brings the predictions to the shape of the labels.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class RelativePose(nn.Module):
    """From two images, how the camera has moved and turned."""

    def __init__(self, width=16):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(2, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.trans = nn.Conv2d(width, 3, kernel_size=4)
        self.rotation = nn.Conv2d(width, 3, kernel_size=4)

    def forward(self, images):
        features = self.encode(images)
        return self.trans(features), self.rotation(features)


class GeometricLoss(nn.Module):
    def __init__(self, flatten, beta=0.5):
        super().__init__()
        self.flatten = flatten
        self.beta = beta

    def l1(self, predicted, label):
        if self.flatten:
            predicted = predicted.flatten(1)
        return torch.abs(predicted - label).mean()

    def forward(self, predicted, labels):
        trans, rotation = map(self.l1, predicted, labels)
        return trans + self.beta * rotation


def scenes(count):
    """Spots that are elsewhere, larger and paler in the second image."""
    trans = 2 * torch.rand(count, 3) - 1
    rotation = torch.stack([trans[:, 1], -trans[:, 0], trans.sum(1)], dim=1) / 2
    grid = torch.arange(16.0) - 7.5

    def spot(x, y, radius):
        far = (grid - x[:, None, None]) ** 2 + (grid[:, None] - y[:, None, None]) ** 2
        return torch.exp(-far / radius[:, None, None] ** 2)

    still = torch.zeros(count)
    first = spot(still, still, still + 3)
    second = spot(4 * trans[:, 0], 4 * trans[:, 1], 3 + 1.5 * trans[:, 2])
    images = torch.stack([first, second], dim=1)
    return images + 0.05 * torch.randn_like(images), trans, rotation


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*scenes(160)), batch_size=32, shuffle=True)
    model = RelativePose()
    criterion = GeometricLoss(flatten=options.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    step, apart = 0, 0.0
    while step < options.steps:
        for images, trans, rotation in loader:
            if step == options.steps:
                break
            predicted = model(images)
            labels = (trans, rotation)
            loss = criterion(predicted, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            errors = [
                (p.detach().flatten(1) - q).abs().mean().item()
                for p, q in zip(predicted, labels)
            ]
            own = errors[0] + criterion.beta * errors[1]
            apart = max(apart, abs(own - loss.item()))
    if options.prove:
        print("fault shows:", "yes" if apart > 1e-4 else "no")


if __name__ == "__main__":
    main()
