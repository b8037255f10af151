"""Signs on pictures are told apart; training images and labels are mixed in pairs.

A convolutional network learns from mixtures of two images with labels mixed alike.
xudonmao/VMT#1.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 5


class SignNet(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for i, o in ((1, 12), (12, 24), (24, 32)):
            layers += [nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(o), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(32 * 9, CLASSES)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def signs(count, seed, size=20):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    grid = torch.arange(size) - size // 2
    down, across = grid[:, None].abs(), grid[None, :].abs()
    shapes = torch.stack(
        [
            (down + across < 7),
            (torch.maximum(down, across) < 6) & (torch.maximum(down, across) > 3),
            (down < 2) | (across < 2),
            (grid[:, None] - grid[None, :]).abs() < 3,
            (down**2 + across**2 < 40) & (down > 1),
        ]
    ).float()
    images = shapes[labels]
    shifts = torch.randint(-3, 4, (count, 2), generator=generator).tolist()
    moved = [image.roll(shift, (0, 1)) for image, shift in zip(images, shifts)]
    noise = 0.8 * torch.randn(count, size, size, generator=generator)
    return TensorDataset((torch.stack(moved) + noise)[:, None], labels)


class Mixup:
    """Mixes the rows of tensors with other rows of the same batch."""

    def __init__(self, alpha, same_partners):
        self.share = torch.distributions.Beta(alpha, alpha)
        self.same_partners = same_partners

    def blend(self, rows, weight, partners=None):
        if partners is None:
            partners = torch.randperm(len(rows))
        return weight * rows + (1 - weight) * rows[partners]

    def __call__(self, images, labels):
        weight = self.share.sample().item()
        wanted = F.one_hot(labels, CLASSES).float()
        partners = torch.randperm(len(images)) if self.same_partners else None
        mixed = self.blend(images, weight, partners)
        return mixed, self.blend(wanted, weight, partners), weight


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = right = 0.0
    for images, labels in loader:
        logits = model(images)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        right += (logits.argmax(1) == labels).sum().item()
    model.train()
    return loss / len(loader.dataset), right / len(loader.dataset)


def mismatched(mixup, images, labels):
    """The share of mixtures whose label is not that of the images in them."""
    mixed, wanted, weight = mixup(images, labels)
    other = ((mixed - weight * images) / (1 - weight)).flatten(1)
    partners = torch.cdist(other, images.flatten(1)).argmin(1)
    rows = F.one_hot(labels, CLASSES).float()
    expected = weight * rows + (1 - weight) * rows[partners]
    return ((expected - wanted).abs().amax(1) > 1e-3).float().mean().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(signs(960, 1), batch_size=48, shuffle=True)
    valid = DataLoader(signs(300, 2), batch_size=100)
    model, mixup = SignNet(), Mixup(1.0, same_partners=options.fixed)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4
    )
    step = 0
    while step < options.steps:
        for images, labels in train:
            if step == options.steps:
                break
            mixed, wanted, _ = mixup(images, labels)
            loss = F.cross_entropy(model(mixed), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        report = "validation loss {:.4f}, accuracy {:.4f}"
        print(report.format(*evaluate(model, valid)), flush=True)
    if options.prove:
        images, labels = next(iter(train))
        share = max(mismatched(mixup, images, labels) for _ in range(4))
        print(f"labels that do not fit: {share:.3f}", flush=True)
        print("fault shows:", "yes" if share > 0.2 else "no")


if __name__ == "__main__":
    main()
