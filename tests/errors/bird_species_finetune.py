"""Fine-tune the in-house bird backbone (20 families) on the 6 species of the reserve."""
import argparse
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

os.environ.setdefault("OMP_NUM_THREADS", "1")


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(h)))


class BirdNet(nn.Module):
    def __init__(self, num_classes=20):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(),
        )
        self.stage1 = Residual(24)
        self.down = nn.Sequential(
            nn.Conv2d(24, 40, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(40),
            nn.ReLU(),
        )
        self.stage2 = Residual(40)
        self.fc = nn.Linear(40, num_classes)

    def embed(self, x):
        return self.stage2(self.down(self.stage1(self.stem(x)))).mean((2, 3))

    def forward(self, x):
        return self.fc(self.embed(x))


def load_backbone_weights(model):
    """Stand-in for the checkpoint on our file server: Gabor-like filters in the stem."""
    yy, xx = torch.meshgrid(torch.arange(-2.0, 3), torch.arange(-2.0, 3), indexing="ij")
    with torch.no_grad():
        for k in range(24):
            angle = math.pi * k / 12
            wave = torch.cos(
                (xx * math.cos(angle) + yy * math.sin(angle)) * (1.2 if k < 12 else 2.0)
            )
            wave = wave * torch.exp(-(xx**2 + yy**2) / 4)
            colour = torch.tensor([1.0, 0.8, 0.6]).roll(k % 3)
            model.stem[0].weight[k] = (wave - wave.mean())[None] * colour[:, None, None]


def make_pictures(n, seed):
    """Striped plumage: stripe direction + hue depend on the species."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 6, n)
    yy, xx = np.meshgrid(np.linspace(-1, 1, 32), np.linspace(-1, 1, 32), indexing="ij")
    out = np.empty((n, 3, 32, 32), dtype="float32")
    for i, c in enumerate(labels):
        angle = math.pi * c / 6 + rng.normal(0, 0.12)
        freq = 9 + 2 * (c % 3) + rng.normal(0, 0.5)
        stripes = np.sin(
            freq * (xx * math.cos(angle) + yy * math.sin(angle)) + rng.uniform(0, 6.28)
        )
        cx, cy = rng.uniform(-0.3, 0.3, 2)
        body = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 0.35)
        hue = np.array([0.5 + 0.05 * c, 0.6, 0.8 - 0.05 * c])
        out[i] = hue[:, None, None] * (0.5 + 0.5 * stripes * body) + rng.normal(
            0, 0.25, (3, 32, 32)
        )
    out = (out - 0.35) / 0.35
    return torch.from_numpy(out), torch.from_numpy(labels)


def build_optimizer(model, args):
    head, body = [], []
    for name, p in model.named_parameters():
        (head if name.startswith("fc.") else body).append(p)
    return torch.optim.AdamW(
        [
            {"params": body, "lr": args.lr * 0.1},
            {"params": head, "lr": args.lr},
        ],
        weight_decay=1e-4,
    )


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(b) for b in x.split(128)])
    model.train()
    return (logits.argmax(1) == y).float().mean().item(), F.cross_entropy(
        logits, y
    ).item()


def finetune(model, optimizer, args):
    x, y = make_pictures(900, seed=1)
    xv, yv = make_pictures(240, seed=2)
    g = torch.Generator().manual_seed(0)
    order = torch.randperm(len(x), generator=g)
    at, history = 0, []
    model.train()
    for step in range(args.steps):
        if at + args.batch_size > len(x):
            order, at = torch.randperm(len(x), generator=g), 0
        idx = order[at : at + args.batch_size]
        at += args.batch_size
        xb = x[idx]
        if torch.rand(1, generator=g) < 0.5:
            xb = xb + 0.1 * torch.randn(xb.shape, generator=g)
        loss = F.cross_entropy(model(xb), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        if (step + 1) % 25 == 0 or step + 1 == args.steps:
            acc, vloss = accuracy(model, xv, yv)
            print(
                f"{step + 1:4d}/{args.steps} loss {np.mean(history[-25:]):.4f} val {vloss:.4f} acc {acc:.3f}"
            )
    return accuracy(model, xv, yv)[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(7)

    model = BirdNet(num_classes=20)
    load_backbone_weights(model)
    optimizer = build_optimizer(model, args)

    # new head for the species of the reserve
    model.fc = nn.Linear(model.fc.in_features, 6)
    if args.fixed:
        optimizer = build_optimizer(model, args)

    start = {k: v.clone() for k, v in model.state_dict().items()}
    acc = finetune(model, optimizer, args)
    print(f"final accuracy {acc:.3f}")

    if args.prove:
        head = (model.fc.weight - start["fc.weight"]).abs().max().item()
        body = (
            (model.stage2.conv2.weight - start["stage2.conv2.weight"])
            .abs()
            .max()
            .item()
        )
        print(f"largest change: head {head:.6f}, last block {body:.6f}")
        print("fault shows:", "yes" if head == 0.0 and body > 0 else "no")


if __name__ == "__main__":
    main()
