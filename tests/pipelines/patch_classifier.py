"""Trains a small vision transformer on synthetic pictures.

    python patch_classifier.py --steps 16
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import DataLoader, Dataset

SIDE, PATCH, CLASSES = 16, 4, 5


class Stripes(Dataset):
    """Stripes of one of five widths, with noise."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (size,), generator=generator)
        columns = torch.arange(SIDE).float()
        waves = torch.sin(columns * (0.4 + self.labels[:, None].float() / 2))
        noise = torch.randn(size, 1, SIDE, SIDE, generator=generator)
        self.pictures = waves[:, None, None, :] + 0.2 * noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pictures[index], self.labels[index]


class Mixing(nn.Module):
    def __init__(self, width, heads, drop):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.heads = heads
        self.drop = drop

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        y = self.norm(x)
        y = scaled_dot_product_attention(
            self.split(self.query(y)),
            self.split(self.key(y)),
            self.split(self.value(y)),
            dropout_p=self.drop if self.training else 0.0,
        )
        return x + y.transpose(1, 2).flatten(2)


class Transformer(nn.Module):
    def __init__(self, width, heads, depth, drop):
        super().__init__()
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.place = nn.Parameter(torch.zeros((SIDE // PATCH) ** 2, width))
        self.mixers = nn.Sequential(*(Mixing(width, heads, drop) for _ in range(depth)))
        self.classes = nn.Linear(width, CLASSES)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.place
        return self.classes(self.mixers(x).mean(dim=1))


@torch.inference_mode()
def accuracy(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def train(options):
    torch.manual_seed(options.seed)
    model = Transformer(24, 4, 2, options.drop)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shuffle = torch.Generator().manual_seed(options.seed)
    data = Stripes(options.batch_size * options.steps_per_epoch, options.seed + 1)
    loader = DataLoader(data, options.batch_size, shuffle=True, generator=shuffle,
                        num_workers=options.workers)  # fmt: skip
    held_out = DataLoader(Stripes(32, options.seed + 2), 16)
    step = 0
    while step < options.steps:
        for pictures, labels in loader:
            loss = cross_entropy(model(pictures), labels, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step} loss {loss.item().hex()}", flush=True)
            step += 1
            if step == options.steps:
                return
        accuracy(model, held_out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--steps-per-epoch", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--drop", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train(options)


if __name__ == "__main__":
    main()
