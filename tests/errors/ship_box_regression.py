"""Single-ship localisation on harbour tiles: box + class, uint8 tiles as they come from the archive."""
import argparse
import json
from pathlib import Path
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = ("tanker", "ferry", "sail")


class HarbourTiles(Dataset):
    """Tiles are stored as uint8 HWC, boxes as cx, cy, w, h in 0..1."""

    def __init__(self, n, seed, size=32):
        rng = np.random.default_rng(seed)
        self.tiles = np.empty((n, size, size, 3), dtype=np.uint8)
        self.boxes = np.empty((n, 4), dtype=np.float32)
        self.kinds = rng.integers(0, 3, n)
        for i, kind in enumerate(self.kinds):
            sea = np.array([40, 80, 120]) + rng.normal(0, 8, 3)
            tile = sea + rng.normal(0, 14, (size, size, 3))
            w, h = [(14, 6), (9, 9), (5, 12)][kind]
            w, h = w + rng.integers(-2, 3), h + rng.integers(-2, 3)
            x0, y0 = rng.integers(0, size - w), rng.integers(0, size - h)
            colour = [(150, 60, 50), (210, 210, 205), (190, 180, 90)][kind]
            tile[y0 : y0 + h, x0 : x0 + w] = np.array(colour) + rng.normal(
                0, 15, (h, w, 3)
            )
            self.tiles[i] = tile.clip(0, 255).astype(np.uint8)
            self.boxes[i] = (
                (x0 + w / 2) / size,
                (y0 + h / 2) / size,
                w / size,
                h / size,
            )

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        tile = torch.from_numpy(self.tiles[i]).permute(2, 0, 1).float() / 255.0
        return tile, torch.from_numpy(self.boxes[i]), int(self.kinds[i])


class BoxNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width, momentum=0.3),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.BatchNorm2d(2 * width, momentum=0.3),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width, momentum=0.3),
            nn.ReLU(),
        )
        self.neck = nn.Sequential(
            nn.Flatten(), nn.Linear(2 * width * 64, 96), nn.ReLU()
        )
        self.box = nn.Linear(96, 4)
        self.kind = nn.Linear(96, len(CLASSES))

    def forward(self, tile):
        h = self.neck(self.backbone(tile))
        return torch.sigmoid(self.box(h)), self.kind(h)


def iou(a, b):
    a0, a1 = a[:, :2] - a[:, 2:] / 2, a[:, :2] + a[:, 2:] / 2
    b0, b1 = b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2
    side = (torch.minimum(a1, b1) - torch.maximum(a0, b0)).clamp(min=0)
    inter = side.prod(1)
    return inter / (a[:, 2:].prod(1) + b[:, 2:].prod(1) - inter + 1e-6)


class Pipeline:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.args = args
        self.net = BoxNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=args.lr)
        self.train_loader = DataLoader(
            HarbourTiles(1200, 1),
            batch_size=args.batch_size,
            shuffle=True,
            drop_last=True,
        )
        self.val_loader = DataLoader(HarbourTiles(200, 2), batch_size=100)
        self.pixel_scale = 255.0
        if args.fixed:
            self.pixel_scale = 1.0
        self.inputs_max = 0.0
        self.history = []

    def preprocess(self, tiles):
        tiles = tiles.float() / self.pixel_scale
        self.inputs_max = max(self.inputs_max, tiles.max().item())
        return tiles

    def loss(self, tiles, boxes, kinds):
        box, kind = self.net(self.preprocess(tiles))
        return 5 * F.smooth_l1_loss(box, boxes, beta=0.1) + F.cross_entropy(kind, kinds)

    @torch.no_grad()
    def evaluate(self):
        self.net.eval()
        overlaps, right = [], 0
        for tiles, boxes, kinds in self.val_loader:
            box, kind = self.net(self.preprocess(tiles))
            overlaps.append(iou(box, boxes))
            right += (kind.argmax(1) == kinds).sum().item()
        self.net.train()
        overlaps = torch.cat(overlaps)
        return {
            "miou": overlaps.mean().item(),
            "ap50": (overlaps > 0.5).float().mean().item(),
            "acc": right / len(overlaps),
        }

    def run(self):
        step, total = 0, 0.0
        while step < self.args.steps:
            for tiles, boxes, kinds in self.train_loader:
                loss = self.loss(tiles, boxes, kinds)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
                step += 1
                if step % 30 == 0:
                    scores = self.evaluate()
                    self.history.append({"step": step, "loss": total / 30, **scores})
                    print(
                        " ".join(
                            f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}"
                            for k, v in self.history[-1].items()
                        )
                    )
                    total = 0.0
                if step >= self.args.steps:
                    break
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "history.json").write_text(json.dumps(self.history))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    pipeline = Pipeline(args)
    pipeline.run()
    if args.prove:
        print(f"largest value that went into the network: {pipeline.inputs_max:.5f}")
        print("fault shows:", "yes" if pipeline.inputs_max < 0.01 else "no")
