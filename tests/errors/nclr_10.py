"""Finds a car in pictures of a road: where it is and how far (flips, jitter).

After Eaphan/NCLR, issue 10.
"""

import argparse

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WIDTH, HEIGHT = 48, 32


class CarDataset(Dataset):
    """One car like a box in each; the target is its centre and depth."""

    def __init__(self, count, seed, augment, flip_prob=0.5):
        self.count, self.augment, self.flip_prob = count, augment, flip_prob
        rng = np.random.default_rng(seed)
        x, y = rng.uniform(-6, 6, count), rng.uniform(-0.5, 1.5, count)
        self.place = np.stack([x, y, rng.uniform(8, 24, count)], 1)
        self.shade = rng.uniform(0.4, 1.0, count)
        self.noise_seed = rng.integers(0, 2**31, count)

    def __len__(self):
        return self.count

    def render(self, index, K):
        rng = np.random.default_rng(self.noise_seed[index])
        img = rng.normal(0, 0.1, (HEIGHT, WIDTH, 3)).astype(np.float32)
        img[HEIGHT // 2 :] += 0.2  # the road
        x, y, z = self.place[index]
        u, v = K[0, 0] * x / z + K[0, 2], K[1, 1] * y / z + K[1, 2]
        wide, high = K[0, 0] * 2.0 / z, K[1, 1] * 1.5 / z
        across = np.clip([u - wide / 2, u + wide / 2], 0, WIDTH).round().astype(int)
        down = np.clip([v - high / 2, v + high / 2], 0, HEIGHT).round().astype(int)
        img[slice(*down), slice(*across)] += self.shade[index]
        return img

    def flip(self, img):
        return np.fliplr(img)

    def __getitem__(self, index):
        K = np.array([[40.0, 0, 25.0], [0, 40.0, 15.0], [0, 0, 1]])
        img = self.render(index, K)
        x, y, z = self.place[index].copy()
        if self.augment and np.random.random() < self.flip_prob:
            img = self.flip(img)
            K[0, 2] = WIDTH - K[0, 2]
            x = -x
        if self.augment:
            img = img * np.float32(np.random.uniform(0.8, 1.2))
        u, v = K[0, 0] * x / z + K[0, 2], K[1, 1] * y / z + K[1, 2]
        target = np.array([u / WIDTH, v / HEIGHT, z / 24.0], dtype=np.float32)
        img = torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))
        return img, torch.from_numpy(K).float() / WIDTH, torch.from_numpy(target)


class PaintedCars(CarDataset):
    def flip(self, img):
        np.fliplr(img)
        return img


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, 2, 1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class Locator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            block(3, width), block(width, 2 * width), block(2 * width, 2 * width)
        )
        self.fc = nn.Sequential(
            nn.Linear(2 * width * 4 * 6 + 9, 64), nn.ReLU(), nn.Linear(64, 3)
        )

    def forward(self, img, K):
        return self.fc(torch.cat([self.net(img).flatten(1), K.flatten(1)], 1))


@torch.no_grad()
def evaluate(model, loader):
    """The mean distance from left to right, in pixels."""
    model.eval()
    off = [(model(img, K) - t).abs()[:, 0] * WIDTH for img, K, t in loader]
    model.train()
    return torch.cat(off).mean().item()


def offset(data):
    """Between the bright columns of the pictures and their targets, in pixels."""
    off = []
    for img, _, target in data:
        bright = img.mean((0, 1))
        bright = (bright - bright.median()).clamp(min=0)
        middle = (bright * (torch.arange(WIDTH) + 0.5)).sum() / bright.sum()
        if 6 < target[0] * WIDTH < WIDTH - 6:
            off.append(abs(middle - target[0] * WIDTH).item())
    return float(np.median(off))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    torch.set_num_threads(1)
    cars = CarDataset if args.fixed else PaintedCars
    data = cars(640, args.seed, True)
    train = DataLoader(data, batch_size=32, shuffle=True)
    valid = DataLoader(cars(128, args.seed + 1, False), batch_size=64)
    model = Locator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 4e-3, total_steps=args.epochs * len(train)
    )
    step = 0
    for epoch in range(args.epochs):
        for img, K, target in train:
            loss = F.smooth_l1_loss(model(img, K), target, beta=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} off by {evaluate(model, valid):.2f} pixels", flush=True)
    if args.prove:
        flipped = cars(64, args.seed + 2, True, flip_prob=1.0)
        pixels = offset(flipped[index] for index in range(len(flipped)))
        print(f"cars of flipped samples are {pixels:.2f} pixels from their targets")
        print("fault shows:", "yes" if pixels > 3 else "no", flush=True)


if __name__ == "__main__":
    main()
