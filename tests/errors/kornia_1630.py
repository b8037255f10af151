"""Segments a field into soil, crop, weed and stones, with cropped and resized pictures.

Picture and mask go through the same random crop.
After kornia, pull request 1630.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIDE, CLASSES = 32, 4


class RandomResizedCrop:
    def __init__(self, mask_mode, smallest=14):
        self.mask_mode, self.smallest = mask_mode, smallest

    def __call__(self, picture, mask):
        size = int(torch.randint(self.smallest, SIDE, ()))
        top, left = torch.randint(SIDE - size + 1, (2,)).tolist()
        rows, columns = slice(top, top + size), slice(left, left + size)
        picture = F.interpolate(
            picture[None, :, rows, columns], SIDE, mode="bilinear", align_corners=False
        )
        flat = mask[None, None, rows, columns].float()
        if self.mask_mode == "nearest":
            resized = F.interpolate(flat, SIDE, mode="nearest-exact")
        else:
            resized = F.interpolate(flat, SIDE, mode="bilinear", align_corners=False)
        return picture[0], resized[0, 0].round().long()


class Fields(Dataset):
    def __init__(self, count, seed, transform=None):
        self.transform = transform
        generator = torch.Generator().manual_seed(seed)
        grid = torch.stack(torch.meshgrid(*2 * [torch.arange(SIDE)], indexing="ij"))
        self.masks = torch.zeros(count, SIDE, SIDE, dtype=torch.long)
        for mask in self.masks:
            for kind in (1, 2, 3, 1, 3):
                centre = torch.randint(SIDE, (2, 1, 1), generator=generator)
                radius = torch.randint(4, 9, (), generator=generator)
                mask[((grid - centre) ** 2).sum(0) < radius**2] = kind
        colours = torch.tensor(
            [[0.2, 0.1, 0.1], [0.1, 0.8, 0.2], [0.5, 0.7, 0.1], [0.6, 0.6, 0.6]]
        )
        noise = torch.randn(count, 3, SIDE, SIDE, generator=generator)
        self.pictures = colours[self.masks].permute(0, 3, 1, 2) + 0.25 * noise

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        picture, mask = self.pictures[index], self.masks[index]
        if self.transform is None:
            return picture, mask
        return self.transform(picture, mask)


class SegmentNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = self.block(3, width)
        self.low = self.block(width, 2 * width)
        self.last = self.block(3 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def block(self, inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )

    def forward(self, picture):
        fine = self.first(picture)
        coarse = F.interpolate(self.low(F.max_pool2d(fine, 2)), scale_factor=2)
        return self.head(self.last(torch.cat([fine, coarse], 1)))


@torch.no_grad()
def overlap(model, loader):
    """The mean intersection over union of the classes."""
    model.eval()
    both, either = torch.zeros(2, CLASSES)
    for picture, mask in loader:
        guess = model(picture).argmax(1)
        for kind in range(CLASSES):
            both[kind] += ((guess == kind) & (mask == kind)).sum()
            either[kind] += ((guess == kind) | (mask == kind)).sum()
    return (both / either).mean().item()


def invented(data):
    """Pixels of resized masks with a class that the cropped mask has nowhere."""
    count = 0
    for mask in data.masks[:50]:
        halves = torch.where(torch.arange(SIDE) < SIDE // 2, 0, 3).expand(SIDE, SIDE)
        _, resized = data.transform(torch.zeros(3, SIDE, SIDE), halves)
        count += ((resized == 1) | (resized == 2)).sum().item()
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    crop = RandomResizedCrop("nearest" if args.fixed else "bilinear")
    train, valid = Fields(320, args.seed, crop), Fields(64, args.seed + 1)
    loader = DataLoader(train, batch_size=16, shuffle=True)
    valid_loader = DataLoader(valid, batch_size=32)
    model = SegmentNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for picture, mask in loader:
            loss = F.cross_entropy(model(picture), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} overlap {overlap(model, valid_loader):.4f}", flush=True)
    if args.prove:
        count = invented(train)
        print(f"{count} pixels between classes 0 and 3 became 1 or 2")
        print("fault shows:", "yes" if count else "no", flush=True)


if __name__ == "__main__":
    main()
