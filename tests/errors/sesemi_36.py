"""Supervised training on pictures of tiles; averaged weights are what is validated.

After sesemi, issue 36.
"""

import argparse
import copy

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 5


def tiles(count, seed):
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (count,), generator=generator)
    grid = torch.linspace(0, 1, 16)
    shift = 6.3 * torch.rand(count, 1, 1, generator=generator)
    angle = label[:, None, None] * torch.pi / CLASSES
    along = grid[None, :, None] * angle.cos() + grid[None, None, :] * angle.sin()
    picture = 3.0 + 2.0 * torch.sin(18 * along + shift)
    picture = picture + torch.randn(count, 16, 16, generator=generator)
    return TensorDataset(picture[:, None], label)


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(block(1, 16), block(16, 32), block(32, 32))
        self.head = nn.Linear(32 * 4, CLASSES)

    def forward(self, picture):
        return self.head(self.backbone(picture).flatten(1))


class EMA:
    """Exponential moving average of a model."""

    def __init__(self, model, decay, with_buffers):
        self.decay, self.with_buffers = decay, with_buffers
        self.ema_model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for average, current in zip(
            self.ema_model.parameters(), model.parameters(), strict=True
        ):
            average.lerp_(current, 1 - self.decay)
        if self.with_buffers:
            for average, current in zip(
                self.ema_model.buffers(), model.buffers(), strict=True
            ):
                average.copy_(current)


@torch.no_grad()
def accuracy(model, loader):
    was_training = model.training
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train(was_training)
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--ema-decay", type=float, default=0.9)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train = DataLoader(tiles(640, args.seed), batch_size=64, shuffle=True)
    valid = DataLoader(tiles(400, args.seed + 1), batch_size=200)
    model = Net()
    ema = EMA(model, args.ema_decay, with_buffers=args.fixed)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, args.epochs * len(train)
    )
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for picture, label in train:
            loss = F.cross_entropy(model(picture), label)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            ema.update(model)
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} train accuracy {accuracy(model, train):.3f}")
    print(f"valid accuracy {accuracy(ema.ema_model, valid):.4f}")
    if args.prove:
        pairs = zip(ema.ema_model.buffers(), model.buffers(), strict=True)
        gap = max((a - b).abs().max().item() for a, b in pairs)
        print(f"buffers of the average are off the model's by up to {gap:.4f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
