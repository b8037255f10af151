"""3D U-Net training on patches of small volumes, with augmentation in the loader workers."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

GLOBAL_RANDOM_STATE = np.random.RandomState(47)


class RandomFlip:
    """Flips each axis with probability one half."""

    def __init__(self, random_state):
        self.random_state = random_state

    def __call__(self, m):
        for axis in (0, 1, 2):
            if self.random_state.uniform() > 0.5:
                m = np.flip(m, axis)
        return m


class RandomRotate90:
    def __init__(self, random_state):
        self.random_state = random_state

    def __call__(self, m):
        return np.rot90(m, self.random_state.randint(0, 4), (1, 2))


class RandomContrast:
    def __init__(self, random_state, alpha=(0.5, 1.5)):
        self.random_state = random_state
        self.alpha = alpha
        self.last = None

    def __call__(self, m):
        self.last = self.random_state.uniform(*self.alpha)
        return np.clip(m.mean() + self.last * (m - m.mean()), -3, 3)


class Transformer:
    """Builds the pipelines for raw data and labels; both start from one seed so that they agree."""

    def __init__(self):
        self.seed = GLOBAL_RANDOM_STATE.randint(10000000)

    def raw_transform(self):
        rs = np.random.RandomState(self.seed)
        return [
            RandomFlip(rs),
            RandomRotate90(rs),
            RandomContrast(np.random.RandomState(self.seed + 1)),
        ]

    def label_transform(self):
        rs = np.random.RandomState(self.seed)
        return [RandomFlip(rs), RandomRotate90(rs)]


def run(transforms, m):
    for t in transforms:
        m = t(m)
    return np.ascontiguousarray(m)


class VolumePatches(Dataset):
    """Bright blobs in noisy volumes; the label is the inside of the blobs."""

    def __init__(self, n, size, seed):
        rng = np.random.RandomState(seed)
        grid = np.stack(np.meshgrid(*[np.arange(size)] * 3, indexing="ij"), -1)
        self.raws, self.labels = [], []
        for _ in range(n):
            label = np.zeros((size,) * 3, dtype=np.float32)
            for _ in range(3):
                c, r = rng.uniform(2, size - 2, 3), rng.uniform(2, 4)
                label[((grid - c) ** 2).sum(-1) < r**2] = 1
            raw = (
                label
                + 0.7 * rng.randn(size, size, size)
                + np.linspace(0, 1, size)[:, None, None]
            )
            self.raws.append(((raw - raw.mean()) / raw.std()).astype(np.float32))
            self.labels.append(label)
        transformer = Transformer()
        self.raw_transform = transformer.raw_transform()
        self.label_transform = transformer.label_transform()

    def __len__(self):
        return len(self.raws)

    def __getitem__(self, i):
        raw = run(self.raw_transform, self.raws[i])
        label = run(self.label_transform, self.labels[i])
        return (
            torch.from_numpy(raw)[None].float(),
            torch.from_numpy(label)[None],
            self.raw_transform[-1].last,
        )

    def reseed(self, seed):
        for t in self.raw_transform + self.label_transform:
            t.random_state.seed(seed % 2**32)


def DoubleConv(i, o):
    return nn.Sequential(
        nn.Conv3d(i, o, 3, padding=1, bias=False),
        nn.GroupNorm(4, o),
        nn.ReLU(),
        nn.Conv3d(o, o, 3, padding=1, bias=False),
        nn.GroupNorm(4, o),
        nn.ReLU(),
    )


class UNet3D(nn.Module):
    def __init__(self, f=8):
        super().__init__()
        self.enc1, self.enc2 = DoubleConv(1, f), DoubleConv(f, 2 * f)
        self.dec = DoubleConv(3 * f, f)
        self.final_conv = nn.Conv3d(f, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool3d(a, 2))
        b = F.interpolate(b, scale_factor=2)
        return self.final_conv(self.dec(torch.cat([a, b], 1)))


def bce_dice(logits, target):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * target).sum() + 1) / (
        (p * p).sum() + (target * target).sum() + 1
    )
    return F.binary_cross_entropy_with_logits(logits, target) + dice


def seed_worker(worker_id):
    info = torch.utils.data.get_worker_info()
    info.dataset.reseed(info.seed)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)

    dataset = VolumePatches(32, 16, seed=5)
    init = None
    if args.fixed:
        init = seed_worker
    loader = DataLoader(
        dataset, batch_size=4, shuffle=True, num_workers=2, worker_init_fn=init
    )

    model = UNet3D()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
    step, epoch, contrasts = 0, 0, []
    while step < args.steps:
        contrasts.append([])
        for raw, label, alpha in loader:
            loss = bce_dice(model(raw), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            contrasts[-1].append([round(a, 6) for a in alpha.tolist()])
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} iteration {step} loss {loss.item():.4f}")
            if step == args.steps:
                break
        epoch += 1

    if args.prove:
        batches = [tuple(b) for e in contrasts for b in e]
        print(
            f"{len(batches)} batches, {len(set(batches))} different sets of contrast factors"
        )
        print("fault shows:", "yes" if len(set(batches)) < len(batches) else "no")


if __name__ == "__main__":
    main()
