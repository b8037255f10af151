"""LeNet on rendered digits (uint8 pictures, like MNIST), DataLoader with workers."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEGMENTS = {  # seven-segment style strokes: (x0, y0, x1, y1)
    "a": (0, 0, 1, 0),
    "b": (1, 0, 1, 1),
    "c": (1, 1, 1, 2),
    "d": (0, 2, 1, 2),
    "e": (0, 1, 0, 2),
    "f": (0, 0, 0, 1),
    "g": (0, 1, 1, 1),
}
DIGITS = [
    "abcdef",
    "bc",
    "abged",
    "abgcd",
    "fgbc",
    "afgcd",
    "afgedc",
    "abc",
    "abcdefg",
    "abcdfg",
]


def render(digit, rng, size=28):
    img = np.zeros((size, size), dtype=np.float32)
    w, h = rng.uniform(7, 11), rng.uniform(7, 10)
    x0, y0 = rng.uniform(5, 10), rng.uniform(3, 7)
    slant = rng.uniform(-0.25, 0.25)
    yy, xx = np.mgrid[0:size, 0:size]
    thick = rng.uniform(0.9, 1.7)
    for s in DIGITS[digit]:
        ax, ay, bx, by = SEGMENTS[s]
        n = 9
        for t in np.linspace(0, 1, n):
            px = x0 + (ax + (bx - ax) * t) * w - slant * (ay + (by - ay) * t) * h
            py = y0 + (ay + (by - ay) * t) * h
            img = np.maximum(
                img, np.exp(-((xx - px) ** 2 + (yy - py) ** 2) / (2 * thick**2))
            )
    img = 255 * img + rng.normal(0, 25, img.shape)
    return img.clip(0, 255).astype(np.uint8)


def to_tensor(img):
    """HWC or HW uint8 -> CHW float in [0, 1]"""
    t = torch.from_numpy(img)
    t = t.unsqueeze(0) if t.dim() == 2 else t.permute(2, 0, 1)
    return t.float().div(255) if t.dtype == torch.uint8 else t


class DigitDataset(Dataset):
    def __init__(self, n, seed, transform=to_tensor):
        rng = np.random.default_rng(seed)
        self.targets = rng.integers(0, 10, n)
        self.data = np.stack([render(int(d), rng) for d in self.targets])
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.transform(self.data[index]), int(self.targets[index])


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 5, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.fc1 = nn.Linear(16 * 4 * 4, 84)
        self.fc2 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def prepare_batch(images, fixed):
    if not fixed:
        images = images / 255.0
    return images


def train(args, model, optimizer, loader, step, seen_max):
    model.train()
    for images, targets in loader:
        images = prepare_batch(images, args.fixed)
        seen_max.append(images.max().item())
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
        step += 1
        if step % args.log_interval == 0:
            print(f"Train step: {step} \tLoss: {loss.item():.6f}")
        if step >= args.steps:
            break
    return step


def test(args, model, loader):
    model.eval()
    loss, correct = 0, 0
    with torch.no_grad():
        for images, targets in loader:
            output = model(prepare_batch(images, args.fixed))
            loss += F.cross_entropy(output, targets, reduction="sum").item()
            correct += output.argmax(1).eq(targets).sum().item()
    n = len(loader.dataset)
    print(
        f"Test set: average loss {loss / n:.4f}, accuracy {correct}/{n} ({100.0 * correct / n:.1f}%)"
    )


def main():
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--log-interval", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train_loader = DataLoader(
        DigitDataset(1600, 1),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        drop_last=True,
    )
    test_loader = DataLoader(DigitDataset(400, 2), batch_size=200)

    model = LeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step, seen_max = 0, []
    while step < args.steps:
        step = train(args, model, optimizer, train_loader, step, seen_max)
        test(args, model, test_loader)

    if args.prove:
        print(
            f"largest pixel value that the network was trained on: {max(seen_max):.5f}"
        )
        print("fault shows:", "yes" if max(seen_max) < 0.01 else "no")


if __name__ == "__main__":
    main()
