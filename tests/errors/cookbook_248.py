import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ID2LABEL = {0: "background", 1: "leaf", 2: "stone"}


def draw_example(rng):
    img = rng.uniform(0.0, 0.25, (32, 32, 3)).astype(np.float32)
    lab = np.zeros((32, 32), dtype=np.uint8)
    yy, xx = np.mgrid[0:32, 0:32]
    cy, cx = rng.uniform(5, 26, 2)
    ry, rx = rng.uniform(3, 7, 2)
    leaf = ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1
    y0, x0 = rng.integers(1, 22, 2)
    h, w = rng.integers(5, 10, 2)
    stone = np.zeros_like(leaf)
    stone[y0 : y0 + h, x0 : x0 + w] = True
    stone &= ~leaf
    img[leaf, 1] += rng.uniform(0.5, 0.75)
    img[stone] += rng.uniform(0.4, 0.6)
    lab[leaf], lab[stone] = 1, 2
    return np.clip(img, 0, 1), lab


class Augment:
    """Random flip, shift and crop-and-resize for HxWxC images (and HxW masks), plus brightness jitter."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def _geometry(self):
        return dict(
            flip=self.rng.random() < 0.5,
            shift=(self.rng.randint(-4, 4), self.rng.randint(-4, 4))
            if self.rng.random() < 0.7
            else (0, 0),
            crop=self.rng.uniform(0.8, 1.0) if self.rng.random() < 0.5 else 1.0,
            corner=(self.rng.random(), self.rng.random()),
        )

    @staticmethod
    def _warp(arr, geo):
        if geo["flip"]:
            arr = arr[:, ::-1]
        arr = np.roll(arr, geo["shift"], axis=(0, 1))
        size = arr.shape[0]
        side = int(round(size * geo["crop"]))
        top, left = (int(c * (size - side)) for c in geo["corner"])
        take = np.floor(np.arange(size) * side / size).astype(int)
        return np.ascontiguousarray(arr[top + take][:, left + take])

    def __call__(self, image, mask=None):
        geo = self._geometry()
        gain = self.rng.uniform(0.85, 1.15)
        out = {"image": np.clip(self._warp(image, geo) * gain, 0, 1).astype(np.float32)}
        if mask is not None:
            out["mask"] = self._warp(mask, geo)
        return out


class SegmentationData(Dataset):
    def __init__(self, n, seed, transform=None, fixed=False):
        rng = np.random.default_rng(seed)
        self.examples = [draw_example(rng) for _ in range(n)]
        self.transform = transform
        self.fixed = fixed

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        image, label = self.examples[i]
        if self.transform is not None:
            if self.fixed:
                both = self.transform(image=image, mask=label)
                image, label = both["image"], both["mask"]
            else:
                image = self.transform(image=image)["image"]
        pixel_values = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        return {
            "pixel_values": (pixel_values - 0.3) / 0.3,
            "labels": torch.from_numpy(np.array(label)).long(),
        }


class MixFFN(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1, self.dw, self.fc2 = (
            nn.Conv2d(dim, 2 * dim, 1),
            nn.Conv2d(2 * dim, 2 * dim, 3, padding=1, groups=2 * dim),
            nn.Conv2d(2 * dim, dim, 1),
        )

    def forward(self, x):
        return self.fc2(F.gelu(self.dw(self.fc1(x))))


class Stage(nn.Module):
    def __init__(self, cin, dim, stride):
        super().__init__()
        self.embed = nn.Conv2d(cin, dim, 3, stride=stride, padding=1)
        self.norm = nn.GroupNorm(1, dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.norm2 = nn.GroupNorm(1, dim)
        self.ffn = MixFFN(dim)

    def forward(self, x):
        x = self.embed(x)
        b, c, h, w = x.shape
        q = self.norm(x).flatten(2).transpose(1, 2)
        kv = F.avg_pool2d(self.norm(x), max(h // 4, 1)).flatten(2).transpose(1, 2)
        x = x + self.attn(q, kv, kv, need_weights=False)[0].transpose(1, 2).reshape(
            b, c, h, w
        )
        return x + self.ffn(self.norm2(x))


class MiniSegformer(nn.Module):
    def __init__(self, num_labels):
        super().__init__()
        self.s1, self.s2 = Stage(3, 16, 2), Stage(16, 32, 2)
        self.fuse1, self.fuse2 = nn.Conv2d(16, 24, 1), nn.Conv2d(32, 24, 1)
        self.head = nn.Sequential(nn.GELU(), nn.Conv2d(24, num_labels, 1))

    def forward(self, x):
        a = self.s1(x)
        b = self.s2(a)
        z = self.fuse1(a) + F.interpolate(
            self.fuse2(b), scale_factor=2, mode="bilinear", align_corners=False
        )
        return F.interpolate(
            self.head(z), scale_factor=2, mode="bilinear", align_corners=False
        )


@torch.no_grad()
def compute_metrics(model, loader):
    model.eval()
    inter, union = torch.zeros(3), torch.zeros(3)
    for batch in loader:
        pred = model(batch["pixel_values"]).argmax(1)
        for c in ID2LABEL:
            p, t = pred == c, batch["labels"] == c
            inter[c] += (p & t).sum()
            union[c] += (p | t).sum()
    model.train()
    return inter / union.clamp(min=1)


def alignment(dataset):
    hits = total = 0.0
    for i in range(len(dataset)):
        item = dataset[i]
        bright = (item["pixel_values"] * 0.3 + 0.3).amax(0) > 0.36
        fg = item["labels"] > 0
        hits += (bright & fg).sum().item()
        total += (bright | fg).sum().item()
    return hits / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(42)

    train_ds = SegmentationData(256, 0, Augment(0), args.fixed)
    test_ds = SegmentationData(64, 1)
    train_dl = DataLoader(
        train_ds,
        batch_size=16,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
    )
    test_dl = DataLoader(test_ds, batch_size=32)

    model = MiniSegformer(len(ID2LABEL))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.epochs * len(train_dl)
    )
    for epoch in range(args.epochs):
        running = 0.0
        for batch in train_dl:
            loss = F.cross_entropy(model(batch["pixel_values"]), batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.item()
        iou = compute_metrics(model, test_dl)
        print(
            f"epoch {epoch}: train loss {running / len(train_dl):.3f} | "
            + " ".join(f"IoU[{ID2LABEL[c]}]={iou[c]:.3f}" for c in ID2LABEL)
            + f" | mean {iou.mean():.3f}"
        )

    if args.prove:
        score = alignment(train_ds)
        print(
            f"overlap of visible objects with the labels handed to the model: {score:.3f}"
        )
        print("fault shows:", "yes" if score < 0.85 else "no")


if __name__ == "__main__":
    main()
