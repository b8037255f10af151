"""Galaxy morphology (kaggle-style script): spiral / elliptical / edge-on / irregular.

Pictures are generated once, random rotations, brightness jitter and sky noise
are applied on the fly in the loader workers.
"""
import argparse
import math
import warnings

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore", category=UserWarning)

CLASSES = ["spiral", "elliptical", "edge_on", "irregular"]


class CFG:
    img = 28
    n_train = 768
    n_val = 256
    bs = 32
    lr = 2e-3
    wd = 1e-4
    workers = 2
    seed = 2023


def render(kind, rng):
    ax = np.linspace(-1, 1, CFG.img)
    y, x = np.meshgrid(ax, ax, indexing="ij")
    a = rng.uniform(0, math.pi)
    u, v = x * np.cos(a) + y * np.sin(a), -x * np.sin(a) + y * np.cos(a)
    r = np.sqrt(u**2 + v**2) + 1e-6
    if kind == 0:
        arms = np.cos(2 * np.arctan2(v, u) - 7 * r + rng.uniform(0, 6))
        img = np.exp(-2.5 * r) * (1 + 0.8 * arms)
    elif kind == 1:
        q = rng.uniform(0.6, 0.95)
        img = 1.2 * np.exp(-4 * np.sqrt(u**2 + (v / q) ** 2))
    elif kind == 2:
        img = np.exp(-2 * np.abs(u)) * np.exp(-14 * np.abs(v))
    else:
        img = np.zeros_like(x)
        for _ in range(4):
            px, py = rng.uniform(-0.5, 0.5, 2)
            img += 0.5 * np.exp(-30 * ((x - px) ** 2 + (y - py) ** 2))
    return img.astype(np.float32)


class GalaxyDataset(Dataset):
    def __init__(self, n, seed, augment):
        self.rng = np.random.default_rng(seed)
        self.labels = self.rng.integers(0, 4, n)
        self.images = np.stack([render(k, self.rng) for k in self.labels])
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = self.images[i]
        gain = 1.0
        if self.augment:
            img = np.rot90(img, k=int(self.rng.integers(4)))
            if self.rng.random() < 0.5:
                img = img[:, ::-1]
            gain = self.rng.uniform(0.6, 1.4)
            sky = self.rng.normal(0, 0.15, size=img.shape)
            img = gain * img + sky
        img = np.ascontiguousarray(img, dtype=np.float32)
        return torch.from_numpy(img)[None], int(self.labels[i]), float(gain)


def reseed_worker(worker_id):
    info = torch.utils.data.get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


def build_model():
    def cbr(i, o):
        return [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

    return nn.Sequential(
        *cbr(1, 16),
        nn.MaxPool2d(2),
        *cbr(16, 32),
        nn.MaxPool2d(2),
        *cbr(32, 32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32, len(CLASSES)),
    )


def train_fn(model, loader, optimizer, scheduler, criterion, max_steps, gains):
    model.train()
    losses = []
    for images, labels, gain in loader:
        if len(losses) >= max_steps:
            break
        optimizer.zero_grad()
        logits = model(images)
        loss = criterion(logits, labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        gains.append(gain)
    return losses


def valid_fn(model, loader, criterion):
    model.eval()
    losses, preds, trues = [], [], []
    with torch.no_grad():
        for images, labels, _ in loader:
            logits = model(images)
            losses.append(criterion(logits, labels).item())
            preds.append(logits.argmax(1))
            trues.append(labels)
    acc = (torch.cat(preds) == torch.cat(trues)).float().mean().item()
    return float(np.mean(losses)), acc


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(CFG.seed)
    np.random.seed(CFG.seed)

    init_fn = None
    if args.fixed:
        init_fn = reseed_worker
    train_ds = GalaxyDataset(CFG.n_train, CFG.seed, augment=True)
    valid_ds = GalaxyDataset(CFG.n_val, CFG.seed + 1, augment=False)
    train_loader = DataLoader(
        train_ds,
        CFG.bs,
        shuffle=True,
        drop_last=True,
        num_workers=CFG.workers,
        worker_init_fn=init_fn,
    )
    valid_loader = DataLoader(valid_ds, 128)

    model = build_model()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.wd)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=args.steps, eta_min=1e-5
    )

    gains, best, epoch, done = [], 0.0, 0, 0
    while done < args.steps:
        losses = train_fn(
            model,
            train_loader,
            optimizer,
            scheduler,
            criterion,
            args.steps - done,
            gains,
        )
        done += len(losses)
        epoch += 1
        val_loss, acc = valid_fn(model, valid_loader, criterion)
        star = "*" if acc > best else ""
        best = max(best, acc)
        print(
            f"Epoch {epoch} - steps {done} - train {np.mean(losses):.4f} - val {val_loss:.4f} - acc {acc:.4f} {star}"
        )
    print(f"best acc {best:.4f}")

    if args.prove:
        same = len(gains) > 1 and torch.equal(gains[0], gains[1])
        print("fault shows:", "yes" if same else "no")


if __name__ == "__main__":
    main()
