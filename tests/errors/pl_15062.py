"""A backbone trained on one kind of pictures gets a second head for another kind.

A fine-tuning callback freezes the backbone, and the first head must keep working with
it. After Lightning, issue 15062.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 4


def shapes(count, seed, bright):
    """Bars, crosses, rings, dots; in bright pictures with more contrast."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (count,), generator=generator)
    grid = torch.arange(20) - 9.5
    shift = torch.randint(-3, 4, (2, count, 1, 1), generator=generator)
    row, column = grid[:, None] - shift[0], grid[None, :] - shift[1]
    radius = (row**2 + column**2).sqrt()
    kinds = [
        (row.abs() < 2) & (column.abs() < 6),
        (row.abs() < 1.2) | (column.abs() < 1.2),
        (radius - 5).abs() < 1.2,
        radius < 3,
    ]
    kinds = [kind.expand(count, 20, 20) for kind in kinds]
    picture = torch.stack(kinds, 1).float()[torch.arange(count), label]
    picture = picture + 0.4 * torch.randn(count, 20, 20, generator=generator)
    if bright:
        picture, label = 1.6 * picture + 0.4, (label + 1) % CLASSES
    return TensorDataset(picture[:, None], label)


class Backbone(nn.Sequential):
    def __init__(self):
        layers, inputs = [], 1
        for outputs in (12, 24, 24):
            layers += [
                nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
            inputs = outputs
        super().__init__(*layers, nn.Flatten(), nn.Linear(24 * 4, 32))


class Module(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(32, CLASSES)

    def forward(self, picture):
        return self.head(F.relu(self.backbone(picture)))


class BackboneFinetuning:
    def __init__(self, fixed):
        self.fixed = fixed

    def freeze_before_training(self, module):
        for parameter in module.backbone.parameters():
            parameter.requires_grad = False

    def on_train_epoch_start(self, module):
        if self.fixed:
            module.backbone.eval()


class Trainer:
    def __init__(self, epochs, callbacks=()):
        self.epochs, self.callbacks, self.step = epochs, callbacks, 0

    def fit(self, module, loader, lr=3e-3):
        for callback in self.callbacks:
            callback.freeze_before_training(module)
        trainable = [p for p in module.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(trainable, lr=lr)
        for _ in range(self.epochs):
            module.train()
            for callback in self.callbacks:
                callback.on_train_epoch_start(module)
            for picture, label in loader:
                loss = F.cross_entropy(module(picture), label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(f"step {self.step} loss {loss.item():.4f}", flush=True)
                self.step += 1

    @torch.no_grad()
    def test(self, module, dataset):
        module.eval()
        pictures, labels = dataset.tensors
        return (module(pictures).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    first_data = shapes(512, args.seed, bright=False)
    second_data = shapes(512, args.seed + 1, bright=True)
    test_data = shapes(500, args.seed + 2, bright=False)

    first = Module(Backbone())
    trainer = Trainer(args.epochs)
    trainer.fit(first, DataLoader(first_data, 64, shuffle=True))
    print(f"first head {trainer.test(first, test_data):.4f}")

    second = Module(first.backbone)
    if args.prove:
        before = [buffer.clone() for buffer in first.backbone.buffers()]
    tuner = Trainer(args.epochs, [BackboneFinetuning(args.fixed)])
    tuner.fit(second, DataLoader(second_data, 64, shuffle=True))
    print(f"second head {tuner.test(second, shapes(500, args.seed + 3, True)):.4f}")
    print(f"first head afterwards {trainer.test(first, test_data):.4f}")
    if args.prove:
        pairs = zip(first.backbone.buffers(), before, strict=True)
        moved = max((a - b).abs().max().item() for a, b in pairs)
        print(f"buffers of the frozen backbone moved by up to {moved:.4f}")
        print("fault shows:", "yes" if moved > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
