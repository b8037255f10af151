"""Finds the tips of a lobster's claws: heatmaps, turned into places by a soft argmax.

Pictures are mirrored at random, which also exchanges left and right; the rate falls in
steps; pictures are mirrored in the test too, and both answers averaged.

    python keypoint_claws.py --epochs 6
"""

import argparse

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

SIDE, POINTS = 32, 3
SWAP = [1, 0, 2]  # left claw, right claw, tail


def lobsters(count, rng):
    """Claws of two kinds at the sides of a body, whose tail points down."""
    ys, xs = np.mgrid[:SIDE, :SIDE]
    pictures = rng.normal(0, 0.15, (count, 1, SIDE, SIDE))
    points = np.empty((count, POINTS, 2))
    for i in range(count):
        centre = rng.uniform(12, 20, 2)
        points[i, 0] = centre + [-rng.uniform(4, 7), rng.uniform(-9, -5)]
        points[i, 1] = centre + [rng.uniform(4, 7), rng.uniform(-9, -5)]
        points[i, 2] = centre + [rng.uniform(-3, 3), rng.uniform(6, 9)]
        for (x, y), size in zip(points[i], (1.2, 1.2, 2.0)):
            distance = (xs - x) ** 2 + (ys - y) ** 2
            pictures[i, 0] += np.exp(-distance / (2 * size**2))
            for part in np.linspace(0, 1, 12):
                line = centre + part * (np.array([x, y]) - centre)
                distance = (xs - line[0]) ** 2 + (ys - line[1]) ** 2
                pictures[i, 0] += 0.08 * np.exp(-distance)
    return (
        torch.tensor(pictures, dtype=torch.float32),
        torch.tensor(points, dtype=torch.float32),
    )


def mirror(picture, points=None):
    picture = picture.flip(-1)
    if points is None:
        return picture
    points = points[:, SWAP].clone()
    points[..., 0] = SIDE - 1 - points[..., 0]
    return picture, points


class HeatmapNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()

        def conv(inputs, outputs, stride=1):
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                nn.GroupNorm(4, outputs),
                nn.ReLU(),
            )

        self.high = conv(1, width)
        self.low = nn.Sequential(
            conv(width, 2 * width, 2), conv(2 * width, 2 * width, 2),
            conv(2 * width, 2 * width),
        )  # fmt: skip
        self.mix = conv(3 * width, width)
        self.out = nn.Conv2d(width, POINTS, 1)

    def forward(self, picture):
        high = self.high(picture)
        low = F.interpolate(self.low(high), size=(SIDE, SIDE), mode="bilinear")
        return self.out(self.mix(torch.cat([high, low], 1)))


def soft_argmax(heat):
    chance = heat.flatten(2).softmax(-1).view_as(heat)
    axis = torch.arange(SIDE, dtype=heat.dtype)
    x = (chance.sum(2) * axis).sum(-1)
    y = (chance.sum(3) * axis).sum(-1)
    return torch.stack([x, y], -1), chance


def criterion(heat, points):
    place, chance = soft_argmax(heat)
    axis = torch.arange(SIDE, dtype=heat.dtype)
    x = (axis - points[..., :1]).square()
    y = (axis - points[..., 1:]).square()
    wanted = (-(y[..., :, None] + x[..., None, :]) / 4.5).flatten(2).softmax(-1)
    shape = -(wanted * heat.flatten(2).log_softmax(-1)).sum(-1).mean()
    return 0.05 * F.l1_loss(place, points) + shape


@torch.no_grad()
def error(net, picture, points):
    net.eval()
    straight, _ = soft_argmax(net(picture))
    turned, _ = soft_argmax(net(mirror(picture)))
    turned = turned[:, SWAP].clone()
    turned[..., 0] = SIDE - 1 - turned[..., 0]
    net.train()
    distance = ((straight + turned) / 2 - points).norm(dim=-1)
    return distance.mean().item(), (distance < 1.5).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    pictures, points = lobsters(256, rng)
    held = lobsters(96, rng)
    net = HeatmapNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5], gamma=0.3)
    step = 0
    for epoch in range(args.epochs):
        for rows in torch.from_numpy(rng.permutation(len(pictures))).split(32):
            picture, point = pictures[rows], points[rows]
            if rng.random() < 0.5:
                picture, point = mirror(picture, point)
            loss = criterion(net(picture), point)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        schedule.step()
        mean, share = error(net, *held)
        print(f"epoch {epoch} error {mean:.3f} pixels, {share:.3f} within 1.5")


if __name__ == "__main__":
    main()
