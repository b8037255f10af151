"""Sorts small pictures of shapes: a part is held out, and the rest is augmented.

After growingnet/gromo, issue 58.
"""

import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset, random_split

SIZE = 12


class Shapes(Dataset):
    """Grey pictures of one of four shapes, not always at the same place."""

    def __init__(self, count, seed, spread, transform=None):
        gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(4, (count,), generator=gen)
        self.images = 0.35 * torch.randn(count, 1, SIZE, SIZE, generator=gen)
        self.transform = transform
        centres = 5.5 + spread * (2 * torch.rand(count, 2, generator=gen) - 1)
        for i, label in enumerate(self.labels.tolist()):
            self.images[i, 0] += self.shape(label, centres[i]).float()

    @staticmethod
    def shape(label, centre):
        grid = torch.arange(SIZE).float()
        dy, dx = (grid - centre[0]).abs()[:, None], (grid - centre[1]).abs()[None]
        square = dx.square() + dy.square()
        near = (dx < 3.5) & (dy < 3.5)
        disc, ring = square < 9, (square < 9) & (square > 3)
        plus, cross = (dx < 1) | (dy < 1), (dx - dy).abs() < 1
        return [disc, ring, plus & near, cross & near][label]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, self.labels[index]


class Augment:
    def __init__(self, shift=2, noise=0.2):
        self.shift, self.noise = shift, noise

    def __call__(self, image):
        dy, dx = torch.randint(-self.shift, self.shift + 1, (2,)).tolist()
        image = torch.roll(image, (dy, dx), (1, 2))
        if torch.rand(1) < 0.5:
            image = image.flip(2)
        return image + self.noise * torch.randn_like(image)


def get_datasets(args, train_transform, val_transform=None):
    dataset = Shapes(args.images, 1, spread=0.5)
    val_size = int(args.val_ratio * len(dataset))
    split = torch.Generator().manual_seed(args.seed)
    sizes = [len(dataset) - val_size, val_size]
    train_set, val_set = random_split(dataset, sizes, generator=split)
    train_set.dataset.transform = train_transform
    val_set.dataset.transform = val_transform
    return train_set, val_set


def get_datasets_apart(args, train_transform, val_transform=None):
    train_data = Shapes(args.images, 1, spread=0.5, transform=train_transform)
    val_data = Shapes(args.images, 1, spread=0.5, transform=val_transform)
    val_size = int(args.val_ratio * len(train_data))
    split = torch.Generator().manual_seed(args.seed)
    sizes = [len(train_data) - val_size, val_size]
    rows = range(len(train_data))
    train_part, val_part = random_split(rows, sizes, generator=split)
    train_set = Subset(train_data, train_part.indices)
    return train_set, Subset(val_data, val_part.indices)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 36, 48), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(48, 4)

    def forward(self, x):
        return self.head(self.body(x))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = right = count = 0
    for images, labels in loader:
        logits = model(images)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        right += (logits.argmax(1) == labels).sum().item()
        count += len(labels)
    return loss / count, right / count


def train(args, train_set, val_set, path):
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, 128)
    test_loader = DataLoader(Shapes(512, 2, spread=2.0), 128)
    model, best = Net(), 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for images, labels in train_loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        val_loss, accuracy = evaluate(model, val_loader)
        if accuracy >= best:
            best = accuracy
            torch.save({"model": model.state_dict(), "epoch": epoch}, path)
        print(
            f"epoch {epoch} loss {total / len(train_set):.4f} "
            f"validation {val_loss:.4f} accuracy {accuracy:.3f}",
            flush=True,
        )
    loss, accuracy = evaluate(model, test_loader)
    print(f"test (anywhere) loss {loss:.4f} accuracy {accuracy:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--val-ratio", type=float, default=0.2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    datasets = get_datasets_apart if args.fixed else get_datasets
    train_set, val_set = datasets(args, Augment())
    with tempfile.TemporaryDirectory() as folder:
        train(args, train_set, val_set, os.path.join(folder, "best.pt"))
    if args.prove:
        same = sum(torch.equal(train_set[i][0], train_set[i][0]) for i in range(50))
        print(f"{same} of 50 training pictures are the same when read again")
        print("fault shows:", "yes" if same else "no", flush=True)


if __name__ == "__main__":
    main()
