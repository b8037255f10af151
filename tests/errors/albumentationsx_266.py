#!/usr/bin/env python
"""Defect classifier for a production line camera; on-the-fly augmentation in the dataset, workers in
the loader. Pipeline object in the style of the usual augmentation libraries."""
import argparse
import hashlib
import multiprocessing

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Compose:
    """list of transforms sharing one random generator, each applied with its probability"""

    def __init__(self, transforms, seed=137):
        self.transforms, self.seed = transforms, seed
        self.rng = np.random.default_rng(seed)

    def set_random_seed(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, image):
        applied = []
        for t in self.transforms:
            if self.rng.random() < t.p:
                params = t.get_params(self.rng, image.shape)
                image = t.apply(image, **params)
                applied.append(
                    (
                        type(t).__name__,
                        tuple(round(float(v), 6) for v in params.values()),
                    )
                )
        return {"image": image, "applied": applied}


class HorizontalFlip:
    def __init__(self, p=0.5):
        self.p = p

    def get_params(self, rng, shape):
        return {}

    def apply(self, image):
        return image[:, ::-1]


class Brightness:
    def __init__(self, limit=0.3, p=0.7):
        self.limit, self.p = limit, p

    def get_params(self, rng, shape):
        return {
            "gain": rng.uniform(1 - self.limit, 1 + self.limit),
            "offset": rng.uniform(-self.limit, self.limit),
        }

    def apply(self, image, gain, offset):
        return image * gain + offset


class Shift:
    def __init__(self, pixels=3, p=0.7):
        self.pixels, self.p = pixels, p

    def get_params(self, rng, shape):
        return {
            "dy": rng.integers(-self.pixels, self.pixels + 1),
            "dx": rng.integers(-self.pixels, self.pixels + 1),
        }

    def apply(self, image, dy, dx):
        return np.roll(image, (int(dy), int(dx)), axis=(0, 1))


class CoarseDropout:
    def __init__(self, size=6, p=0.5):
        self.size, self.p = size, p

    def get_params(self, rng, shape):
        return {
            "y": rng.integers(0, shape[0] - self.size),
            "x": rng.integers(0, shape[1] - self.size),
        }

    def apply(self, image, y, x):
        image = image.copy()
        image[y : y + self.size, x : x + self.size] = 0.5
        return image


class DefectDataset(Dataset):
    def __init__(self, n, seed, transform=None):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 3, n)
        self.images = 0.5 + 0.12 * rng.standard_normal((n, 24, 24)).astype(np.float32)
        for img, lab in zip(self.images, self.labels):  # 0 fine, 1 scratch, 2 dent
            y, x = rng.integers(5, 19, 2)
            if lab == 1:
                img[y, max(0, x - 5) : x + 5] += 0.45
            elif lab == 2:
                img[y - 1 : y + 2, x - 1 : x + 2] -= 0.4
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img, tag = self.images[i], ""
        if self.transform is not None:
            out = self.transform(img)
            img, tag = (
                out["image"],
                hashlib.md5(repr(out["applied"]).encode()).hexdigest()[:8],
            )
        return (
            torch.from_numpy(np.ascontiguousarray(img, dtype=np.float32))[None],
            int(self.labels[i]),
            tag,
        )


def init_one_worker(worker_id):
    info = get_worker_info()
    if info.dataset.transform is not None:
        info.dataset.transform.set_random_seed(torch.initial_seed() % 2**32)


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 24, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(24, 3),
    )


def evaluate(model, dataset):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y, _ in DataLoader(dataset, batch_size=100):
            right += (model(x).argmax(1) == y).sum().item()
    model.train()
    return right / len(dataset)


def parse_args():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    return ap.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(21)
    pipeline = Compose([HorizontalFlip(), Brightness(), Shift(), CoarseDropout()])
    train_set, val_set = DefectDataset(320, 1, pipeline), DefectDataset(200, 2)
    worker_init = None
    if args.fixed:
        worker_init = init_one_worker
    loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
        worker_init_fn=worker_init,
        multiprocessing_context=multiprocessing.get_context("fork"),
    )
    model = build_model()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=8e-3, total_steps=max(args.steps, 2)
    )
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
    step, epoch, tags_by_epoch = 0, 0, []
    while step < args.steps:
        tags, total = [], 0.0
        for images, labels, tag in loader:
            if step >= args.steps:
                continue
            loss = loss_fn(model(images), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            total += loss.item()
            tags.extend(tag)
            step += 1
        tags_by_epoch.append(tags)
        epoch += 1
        print(
            f"epoch {epoch}: {step} steps, loss {total / max(1, len(tags) // args.batch_size):.4f}"
        )
    print(f"validation accuracy {evaluate(model, val_set):.4f}")
    if args.prove:
        pairs = [
            (a, b)
            for e0, e1 in zip(tags_by_epoch, tags_by_epoch[1:])
            for a, b in zip(e0, e1)
        ]
        # the untouched picture is legitimately frequent, leave it out
        plain = hashlib.md5(b"[]").hexdigest()[:8]
        pairs = [(a, b) for a, b in pairs if plain not in (a, b)]
        same = float(np.mean([a == b for a, b in pairs])) if pairs else 0.0
        print(
            f"augmentation equal to that at the same place of the epoch before: {same:.3f}"
        )
        print("fault shows:", "yes" if same > 0.9 else "no")


if __name__ == "__main__":
    main()
