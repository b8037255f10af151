"""A small convolutional network sorts pictures of leaves; the best weights are kept.

A fifth of the pictures is split off for the validation. After
deep-learning-v2-pytorch, issue 132.
"""

import argparse
import copy

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset, random_split

SIDE, KINDS = 20, 5


class Leaves(Dataset):
    def __init__(self, count, seed, transform=None):
        generator = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(KINDS, (count,), generator=generator)
        axis = torch.linspace(-1, 1, SIDE)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        angle = torch.atan2(y, x)
        turn = torch.rand(count, 1, 1, generator=generator) * 0.6
        lobes = (self.targets + 1).view(-1, 1, 1)
        edge = 0.6 + 0.22 * torch.cos(lobes * angle + turn)
        leaf = ((x**2 + y**2).sqrt() < edge).float()
        tint = 0.5 + 0.5 * torch.rand(count, 3, 1, 1, generator=generator)
        noise = 0.35 * torch.randn(count, 3, SIDE, SIDE, generator=generator)
        self.pictures = leaf[:, None] * tint + noise
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        picture = self.pictures[index]
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, self.targets[index]


def augment(picture):
    """A random crop of the padded picture, a flip, another brightness, a hole."""
    top, left = torch.randint(0, 5, (2,)).tolist()
    picture = F.pad(picture, (2, 2, 2, 2))[:, top : top + SIDE, left : left + SIDE]
    if torch.rand(()) < 0.5:
        picture = picture.flip(2)
    picture = picture * (0.7 + 0.6 * torch.rand(()))
    top, left = torch.randint(0, SIDE - 6, (2,)).tolist()
    picture[:, top : top + 6, left : left + 6] = 0
    return picture


def make_datasets(args):
    generator = torch.Generator().manual_seed(args.seed)
    data = Leaves(800, args.seed, transform=augment)
    train, valid = random_split(data, [640, 160], generator=generator)
    if args.fixed:
        valid = Subset(Leaves(800, args.seed), valid.indices)
    return train, valid


def network(width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * (SIDE // 4) ** 2, KINDS),
    )


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total = right = 0.0
    for picture, target in loader:
        output = model(picture)
        total += F.cross_entropy(output, target, reduction="sum").item()
        right += (output.argmax(1) == target).sum().item()
    return total / len(loader.dataset), right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = make_datasets(args)
    train_loader = DataLoader(train, batch_size=32, shuffle=True)
    valid_loader = DataLoader(valid, batch_size=80)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step, best_loss, best = 0, float("inf"), None
    for epoch in range(args.epochs):
        model.train()
        for picture, target in train_loader:
            loss = F.cross_entropy(model(picture), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        valid_loss, accuracy = validate(model, valid_loader)
        print(f"epoch {epoch} validation {valid_loss:.4f} accuracy {accuracy:.4f}")
        if valid_loss < best_loss:
            best_loss, best = valid_loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    if args.prove:
        losses = [validate(model, valid_loader)[0] for _ in range(2)]
        print("two validations of the same weights: {:.4f} {:.4f}".format(*losses))
        gap = abs(losses[0] - losses[1])
        print("fault shows:", "yes" if gap > 1e-4 else "no", flush=True)


if __name__ == "__main__":
    main()
