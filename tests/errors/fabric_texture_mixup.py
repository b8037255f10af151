import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser(
    description="fabric weave classifier trained with mixup"
)
parser.add_argument("--steps", type=int, default=240)
parser.add_argument("--batch", type=int, default=48)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--alpha", type=float, default=1.0)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")

WEAVES = ["plain", "twill", "satin", "basket", "herringbone"]
SIZE = 16


def make_fabric(n, rng):
    """Gray patches with a weave-specific pattern, random phase, and noise."""
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    images = np.empty((n, 1, SIZE, SIZE), dtype=np.float32)
    labels = rng.integers(0, len(WEAVES), size=n)
    for i, k in enumerate(labels):
        px, py = rng.uniform(0, 2 * math.pi, size=2)
        f = rng.uniform(0.85, 1.15)
        if k == 0:
            img = np.sin(1.6 * f * xx + px) * np.sin(1.6 * f * yy + py)
        elif k == 1:
            img = np.sin(1.1 * f * (xx + yy) + px)
        elif k == 2:
            img = np.sin(1.1 * f * (2 * xx + yy) / 1.6 + px)
        elif k == 3:
            img = np.sign(np.sin(0.8 * f * xx + px)) * np.sign(
                np.sin(0.8 * f * yy + py)
            )
        else:
            img = np.sin(1.1 * f * (xx + np.abs(yy - SIZE / 2)) + px)
        images[i, 0] = img + rng.normal(0, 0.9, size=img.shape)
    return torch.from_numpy(images), torch.from_numpy(labels)


class WeaveNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


class Mixup:
    """x and y of a batch -> mixed x, both label sets, and the weight."""

    def __init__(self, alpha, seed, fixed):
        self.alpha = alpha
        self.rng = np.random.default_rng(seed)
        self.gen = torch.Generator().manual_seed(seed)
        self.fixed = fixed

    def shuffled(self, n):
        return torch.randperm(n, generator=self.gen)

    def __call__(self, x, y):
        lam = float(self.rng.beta(self.alpha, self.alpha))
        index = self.shuffled(len(x))
        mixed = lam * x + (1 - lam) * x[index]
        partner = y[index] if self.fixed else y[self.shuffled(len(y))]
        return mixed, y, partner, lam


def mix_loss(logits, y_a, y_b, lam):
    return lam * F.cross_entropy(logits, y_a) + (1 - lam) * F.cross_entropy(logits, y_b)


@torch.no_grad()
def score(model, x, y):
    was = model.training
    model.eval()
    logits = model(x)
    model.train(was)
    acc = (logits.argmax(1) == y).float().mean().item()
    return acc, F.cross_entropy(logits, y).item()


def main():
    args = parser.parse_args()
    torch.manual_seed(42)
    rng = np.random.default_rng(42)
    x_train, y_train = make_fabric(1200, rng)
    x_test, y_test = make_fabric(500, rng)

    model = WeaveNet(len(WEAVES))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    mixup = Mixup(args.alpha, seed=7, fixed=args.fixed)

    running = 0.0
    for step in range(1, args.steps + 1):
        pick = torch.from_numpy(rng.integers(0, len(x_train), size=args.batch))
        x, y_a, y_b, lam = mixup(x_train[pick], y_train[pick])
        loss = mix_loss(model(x), y_a, y_b, lam)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running += loss.item()
        if step % 40 == 0:
            acc, nll = score(model, x_test, y_test)
            print(
                f"[{step:4d}] train {running / 40:.3f}  test nll {nll:.3f}  acc {acc:.3f}"
            )
            running = 0.0

    acc, nll = score(model, x_test, y_test)
    print(f"test accuracy {acc:.3f}, nll {nll:.3f}")

    if args.prove:
        gaps = []
        for _ in range(20):
            y = torch.from_numpy(rng.integers(0, len(WEAVES), size=args.batch))
            coded = F.one_hot(y, len(WEAVES)).float()
            mixed, y_a, y_b, lam = mixup(coded, y)
            target = (
                lam * F.one_hot(y_a, len(WEAVES)).float()
                + (1 - lam) * F.one_hot(y_b, len(WEAVES)).float()
            )
            gaps.append((mixed - target).abs().sum(1).div(2).mean().item())
        gap = sum(gaps) / len(gaps)
        print(f"mass of the soft target that is not in the mixed input: {gap:.4f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
