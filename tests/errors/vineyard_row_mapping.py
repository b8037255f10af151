"""Land cover of vineyard tiles: soil, vine rows, track, building.

Annotators left pixels they were not sure about (outlines, shaded corners) unlabelled;
those carry the value 255 in the masks.
"""
import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAMES = ["soil", "vine", "track", "building"]
CLASSES = len(NAMES)
VOID = 255
COLOURS = np.array(
    [[0.55, 0.42, 0.3], [0.25, 0.5, 0.2], [0.6, 0.58, 0.55], [0.85, 0.3, 0.2]]
)


@dataclass
class Tile:
    image: np.ndarray
    mask: np.ndarray


def outline(mask):
    edge = np.zeros(mask.shape, bool)
    edge[:, 1:] |= mask[:, 1:] != mask[:, :-1]
    edge[1:, :] |= mask[1:, :] != mask[:-1, :]
    return edge


def draw_tile(rng, size=32):
    yy, xx = np.mgrid[0:size, 0:size]
    mask = np.zeros((size, size), np.uint8)
    angle, pitch = rng.uniform(0, np.pi), rng.uniform(8, 11)
    phase = (xx * np.cos(angle) + yy * np.sin(angle) + rng.uniform(0, pitch)) % pitch
    field = xx > rng.integers(0, size // 2)
    mask[(phase < 0.55 * pitch) & field] = 1
    if rng.random() < 0.7:
        offset, slope = rng.uniform(6, 26), rng.uniform(-0.4, 0.4)
        mask[np.abs(yy - offset - slope * xx) < 2.5] = 2
    if rng.random() < 0.7:
        r, c = rng.integers(0, size - 14, 2)
        h, w = rng.integers(9, 15, 2)
        mask[r : r + h, c : c + w] = 3
    image = COLOURS[mask] * rng.uniform(0.8, 1.2) + rng.normal(0, 0.1, (size, size, 3))
    labelled = mask.copy()
    labelled[outline(mask)] = VOID
    r, c = rng.integers(0, size - 10, 2)
    labelled[r : r + 10, c : c + 10] = VOID
    return Tile(image.astype(np.float32), labelled)


class TileDataset(Dataset):
    def __init__(self, tiles, args, augment):
        self.tiles, self.augment = tiles, augment
        self.fixed = args.fixed
        self.rng = np.random.default_rng(args.seed)

    def __len__(self):
        return len(self.tiles)

    def target(self, mask):
        mask = torch.from_numpy(mask.astype(np.int64))
        if not self.fixed:
            mask[mask >= CLASSES] = 0
        return mask

    def __getitem__(self, i):
        image, mask = self.tiles[i].image, self.tiles[i].mask
        if self.augment:
            k = int(self.rng.integers(0, 4))
            image, mask = np.rot90(image, k), np.rot90(mask, k)
            if self.rng.random() < 0.5:
                image, mask = image[:, ::-1], mask[:, ::-1]
        image = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)
        return (image - 0.45) / 0.2, self.target(np.ascontiguousarray(mask))


class Double(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1),
            nn.GroupNorm(4, cout),
            nn.SiLU(),
            nn.Conv2d(cout, cout, 3, padding=1),
            nn.GroupNorm(4, cout),
            nn.SiLU(),
        )


class SmallUNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.down1 = Double(3, base)
        self.down2 = Double(base, base * 2)
        self.bottom = Double(base * 2, base * 4)
        self.up2 = Double(base * 6, base * 2)
        self.up1 = Double(base * 3, base)
        self.classify = nn.Conv2d(base, CLASSES, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        a = self.up1(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))
        return self.classify(a)


def seg_loss(logits, target):
    return F.cross_entropy(logits.float(), target, ignore_index=VOID)


@torch.no_grad()
def intersection_over_union(model, loader):
    model.eval()
    confusion = torch.zeros(CLASSES, CLASSES)
    for image, target in loader:
        guess = model(image).argmax(1)
        keep = target != VOID
        cells = target[keep] * CLASSES + guess[keep]
        confusion += torch.bincount(cells, minlength=CLASSES**2).view(
            CLASSES, CLASSES
        )
    inter = confusion.diag()
    return inter / (confusion.sum(0) + confusion.sum(1) - inter).clamp(min=1)


def prove(model, tiles, dataset):
    """Gradient that reaches the scores of pixels nobody labelled."""
    model.eval()
    raw = torch.stack([torch.from_numpy(t.mask.astype(np.int64)) for t in tiles])
    image, target = zip(*[dataset[i] for i in range(len(tiles))])
    logits = model(torch.stack(image)).detach().requires_grad_(True)
    seg_loss(logits, torch.stack(target)).backward()
    pull = logits.grad.abs().sum(1)
    share = (pull[raw == VOID].sum() / pull.sum()).item()
    print(f"share of the loss gradient on unlabelled pixels: {share:.3f}")
    print("fault shows:", "yes" if share > 0.0 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    rng = np.random.default_rng(17)
    tiles = [draw_tile(rng) for _ in range(168)]
    train_set = TileDataset(tiles[:132], args, augment=True)
    valid_set = TileDataset(tiles[132:], args, augment=False)
    train_loader = DataLoader(train_set, args.batch, shuffle=True)
    valid_loader = DataLoader(valid_set, 36)

    model = SmallUNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    total = args.epochs * len(train_loader)
    poly = torch.optim.lr_scheduler.PolynomialLR(optimizer, total, power=0.9)
    best = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            model.train()
            total_loss = 0.0
            for image, target in train_loader:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    logits = model(image)
                loss = seg_loss(logits, target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                poly.step()
                total_loss += loss.item() * len(image)
            iou = intersection_over_union(model, valid_loader)
            detail = " ".join(f"{n} {v:.2f}" for n, v in zip(NAMES, iou.tolist()))
            mean = iou.mean().item()
            mean_loss = total_loss / len(train_set)
            print(f"epoch {epoch} loss {mean_loss:.4f} mIoU {mean:.3f} ({detail})")
            if mean > best:
                best = mean
                torch.save(model.state_dict(), Path(folder) / "unet_best.pt")
        print(f"best mIoU {best:.3f}")
    if args.prove:
        prove(model, tiles[132:], valid_set)


if __name__ == "__main__":
    main()
