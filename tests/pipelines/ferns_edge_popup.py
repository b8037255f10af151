"""Fern fronds told apart by a network that is never trained, only thinned out.

Weights keep their random signed values for good. Each weight has a score; the forward
pass uses the weights whose scores are among the highest of their layer, and the scores
learn through a straight-through estimator (edge-popup, Ramanujan et al., 2020). What
is stored in the end is a seed and a bit mask per layer.
"""

import argparse
import math
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FERNS = ("bracken", "maidenhair", "hartstongue", "spleenwort", "royal")
SIDE = 20


def draw_frond(kind, rng):
    """Midrib and leaflets painted with line segments on a small canvas."""
    canvas = np.zeros((SIDE, SIDE), dtype=np.float32)
    lean = rng.normal(0, 0.12)
    bottom = rng.uniform(7, 13)
    count = (8, 5, 0, 11, 6)[kind]
    length = (6.0, 3.0, 0.0, 2.2, 4.5)[kind] * rng.uniform(0.85, 1.15)
    slope = (0.3, 0.9, 0.0, 0.0, -0.5)[kind] + rng.normal(0, 0.08)
    taper = (1.0, 0.2, 0.0, 0.5, 0.0)[kind]

    def paint(y, x, value):
        yy, xx = int(round(y)), int(round(x))
        if 0 <= yy < SIDE and 0 <= xx < SIDE:
            canvas[yy, xx] = max(canvas[yy, xx], value)

    for t in np.linspace(0, 1, 30):
        y, x = SIDE - 2 - t * (SIDE - 4), bottom + lean * t * SIDE
        paint(y, x, 1.0)
        if kind == 2:
            half = 3.2 * math.sin(math.pi * min(t + 0.15, 1.0))
            for offset in np.linspace(-half, half, 8):
                paint(y, x + offset, 0.8)
    for t in np.linspace(0.15, 0.95, count) if count else ():
        y, x = SIDE - 2 - t * (SIDE - 4), bottom + lean * t * SIDE
        reach = length * (1 - taper * t)
        for side in (-1, 1):
            for step in np.linspace(0, reach, 10):
                paint(y - slope * step, x + side * step, 0.8)
    return canvas + rng.normal(0, 0.30, canvas.shape).astype(np.float32)


class FrondSet(Dataset):
    def __init__(self, count, seed, augment):
        rng = np.random.default_rng(seed)
        self.kinds = rng.integers(0, len(FERNS), count)
        fronds = np.stack([draw_frond(kind, rng) for kind in self.kinds])
        self.fronds = torch.from_numpy(fronds.astype(np.float32))[:, None]
        self.augment = augment

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        frond = self.fronds[index]
        if self.augment and torch.rand(()) < 0.5:
            frond = frond.flip(-1)
        return frond, int(self.kinds[index])


class TopShare(torch.autograd.Function):
    """One for the highest share of the scores, zero for the others."""

    @staticmethod
    def forward(ctx, scores, share):
        mask = torch.zeros_like(scores)
        keep = int(share * scores.numel())
        mask.view(-1)[scores.flatten().topk(keep).indices] = 1.0
        return mask

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Scored:
    """Shared by the layers below: frozen weight, trainable scores."""

    def freeze_and_score(self, share):
        fan_in = self.weight[0].numel()
        std = math.sqrt(2.0 / (fan_in * share))
        with torch.no_grad():
            self.weight.copy_(std * self.weight.sign())
        self.weight.requires_grad_(False)
        self.share = share
        self.scores = nn.Parameter(torch.empty_like(self.weight))
        nn.init.kaiming_uniform_(self.scores, a=math.sqrt(5))

    def mask(self):
        return TopShare.apply(self.scores.abs(), self.share)


class ScoredConv(Scored, nn.Conv2d):
    def __init__(self, *args, share, **kwargs):
        super().__init__(*args, bias=False, **kwargs)
        self.freeze_and_score(share)

    def forward(self, x):
        return self._conv_forward(x, self.weight * self.mask(), None)


class ScoredLinear(Scored, nn.Linear):
    def __init__(self, *args, share):
        super().__init__(*args, bias=False)
        self.freeze_and_score(share)

    def forward(self, x):
        return F.linear(x, self.weight * self.mask())


def build(share, width=32):
    def stage(inputs, outputs):
        return [
            ScoredConv(inputs, outputs, 3, padding=1, share=share),
            nn.BatchNorm2d(outputs, affine=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    return nn.Sequential(
        *stage(1, width),
        *stage(width, width),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        ScoredLinear(9 * width, len(FERNS), share=share),
    )


@torch.no_grad()
def examine(model, loader):
    model.eval()
    loss, hits, count = 0.0, 0, 0
    for fronds, kinds in loader:
        logits = model(fronds)
        loss += F.cross_entropy(logits, kinds, reduction="sum").item()
        hits += (logits.argmax(1) == kinds).sum().item()
        count += len(kinds)
    return loss / count, hits / count


def layers_with_scores(model):
    return {n: m for n, m in model.named_modules() if isinstance(m, Scored)}


@torch.no_grad()
def bit_masks(model):
    return {n: m.mask().bool() for n, m in layers_with_scores(model).items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    generator = torch.Generator().manual_seed(args.seed)
    train = DataLoader(
        FrondSet(1200, [args.seed, 1], augment=True),
        batch_size=60,
        shuffle=True,
        generator=generator,
    )
    held = DataLoader(FrondSet(400, [args.seed, 2], augment=False), batch_size=200)
    model = build(args.share)
    frozen = {n: m.weight.clone() for n, m in layers_with_scores(model).items()}
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trainable, lr=args.lr, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    before = bit_masks(model)
    loss, hits = examine(model, held)
    print(f"random thinning: held loss {loss:.4f} hits {hits:.3f}")

    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for fronds, kinds in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(fronds), kinds)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(kinds)
        schedule.step()
        after = bit_masks(model)
        swapped = np.mean([(after[n] ^ before[n]).float().mean() for n in after])
        before = after
        loss, hits = examine(model, held)
        print(
            f"epoch {epoch} train {total / len(train.dataset):.4f} held {loss:.4f} "
            f"hits {hits:.3f} mask bits swapped {swapped:.2%}"
        )

    for name, layer in layers_with_scores(model).items():
        assert torch.equal(layer.weight, frozen[name])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ferns.npz")
        packed = {n: np.packbits(m.numpy()) for n, m in bit_masks(model).items()}
        np.savez(path, seed=args.seed, **packed)
        print(f"seed and masks take {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
