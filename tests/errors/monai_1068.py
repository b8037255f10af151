"""Lesion segmentation on toy slices. Augmentation classes follow the usual 'Randomizable' layout."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Randomizable:
    """Base for random transforms; every one owns its random state."""

    def __init__(self, seed=None):
        self.R = np.random.RandomState(seed)

    def set_random_state(self, seed):
        self.R = np.random.RandomState(seed)
        return self


class RandShiftIntensity(Randomizable):
    def __init__(self, offsets=0.3, seed=None):
        super().__init__(seed)
        self.offsets = offsets

    def __call__(self, d):
        offset = self.R.uniform(-self.offsets, self.offsets)
        d["image"] = d["image"] + np.float32(offset)
        d["meta"].append(offset)
        return d


class RandRoll(Randomizable):
    """Random translation with wrap-around, same for image and label."""

    def __call__(self, d):
        dy, dx = self.R.randint(-8, 9, size=2)
        for k in ("image", "label"):
            d[k] = np.roll(d[k], (dy, dx), axis=(0, 1))
        d["meta"] += [float(dy), float(dx)]
        return d


class RandFlip(Randomizable):
    def __call__(self, d):
        flip = self.R.rand() < 0.5
        if flip:
            d["image"], d["label"] = (
                d["image"][:, ::-1].copy(),
                d["label"][:, ::-1].copy(),
            )
        d["meta"].append(float(flip))
        return d


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def set_random_state(self, seed):
        for i, t in enumerate(self.transforms):
            t.set_random_state((seed + i) % 2**32)

    def __call__(self, d):
        for t in self.transforms:
            d = t(d)
        return d


class SliceDataset(Dataset):
    def __init__(self, n, transform=None, seed=0):
        rng = np.random.RandomState(seed)
        yy, xx = np.mgrid[:32, :32]
        self.images, self.labels, self.transform = [], [], transform
        for _ in range(n):
            cy, cx, r = rng.randint(8, 24), rng.randint(8, 24), rng.randint(3, 6)
            lab = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
            img = (
                0.8 * lab
                + 0.4 * np.sin(yy / rng.uniform(2, 6))
                + 0.4 * rng.randn(32, 32)
            )
            self.images.append(img.astype(np.float32))
            self.labels.append(lab.astype(np.float32))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        d = {"image": self.images[i], "label": self.labels[i], "meta": []}
        if self.transform is not None:
            d = self.transform(d)
        return (
            d["image"][None].copy(),
            d["label"][None].copy(),
            np.array(d["meta"], dtype=np.float32),
        )


def init_worker(worker_id):
    info = get_worker_info()
    info.dataset.transform.set_random_state(info.seed % 2**32)


class SegNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.e1, self.e2 = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(
            c, 2 * c, 3, stride=2, padding=1
        )
        self.n1, self.n2 = nn.InstanceNorm2d(c, affine=True), nn.InstanceNorm2d(
            2 * c, affine=True
        )
        self.mid = nn.Conv2d(2 * c, 2 * c, 3, padding=1)
        self.out = nn.Conv2d(3 * c, 1, 3, padding=1)

    def forward(self, x):
        a = F.relu(self.n1(self.e1(x)))
        b = F.relu(self.mid(F.relu(self.n2(self.e2(a)))))
        return self.out(torch.cat([a, F.interpolate(b, scale_factor=2.0)], dim=1))


def dice(p, y):
    return 1 - (2 * (p * y).sum((1, 2, 3)) + 1) / (
        p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)

    transform = Compose(
        [RandShiftIntensity(seed=10), RandRoll(seed=11), RandFlip(seed=12)]
    )
    train_ds = SliceDataset(128, transform)
    worker_init_fn = None
    if args.fixed:
        worker_init_fn = init_worker
    loader = DataLoader(
        train_ds,
        batch_size=8,
        shuffle=True,
        num_workers=2,
        worker_init_fn=worker_init_fn,
    )
    net = SegNet()
    opt = torch.optim.Adam(net.parameters(), 3e-3)

    step, epoch, drawn = 0, 0, []
    while step < args.steps:
        running = 0.0
        for img, lab, meta in loader:
            if step >= args.steps:
                break
            logit = net(img)
            loss = dice(
                logit.sigmoid(), lab
            ).mean() + F.binary_cross_entropy_with_logits(logit, lab)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            drawn.append(meta)
            step += 1
        epoch += 1
        print(f"epoch {epoch} average loss: {running / len(loader):.4f}")

    val = SliceDataset(64, seed=99)
    with torch.no_grad():
        x = torch.stack([torch.from_numpy(val[i][0]) for i in range(64)])
        y = torch.stack([torch.from_numpy(val[i][1]) for i in range(64)])
        print(f"validation dice: {1 - dice(net(x).sigmoid(), y).mean().item():.4f}")
    if args.prove:
        drawn = torch.cat(drawn)
        share = len(torch.unique(drawn, dim=0)) / len(drawn)
        print(
            f"{len(drawn)} pictures drawn, share of different augmentations {share:.3f}"
        )
        print("fault shows:", "yes" if share < 0.9 else "no")
