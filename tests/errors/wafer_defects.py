"""
Wafer map defect classifier. The queue kills jobs after a while, so the training writes checkpoints
and is started again (`run_job` below is called once per job slot).
"""
import argparse
import os
import random
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

PATTERNS = ["none", "center", "edge_ring", "scratch", "local", "random"]


class WaferMaps(Dataset):
    def __init__(self, n=900, size=20, seed=8):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
        r = np.sqrt(xx**2 + yy**2)
        disc = r <= 1
        maps, labels = [], []
        for _ in range(n):
            k = int(rng.integers(len(PATTERNS)))
            p = np.full((size, size), 0.06)
            if k == 1:
                p = p + 0.6 * (r < rng.uniform(0.25, 0.45))
            elif k == 2:
                p = p + 0.55 * (r > rng.uniform(0.75, 0.88))
            elif k == 3:
                a, c = rng.uniform(0, np.pi), rng.uniform(-0.3, 0.3)
                p = p + 0.7 * (np.abs(xx * np.cos(a) + yy * np.sin(a) - c) < 0.07)
            elif k == 4:
                cx, cy = rng.uniform(-0.6, 0.6, 2)
                p = p + 0.6 * (np.hypot(xx - cx, yy - cy) < 0.25)
            elif k == 5:
                p = p + 0.25
            fail = (rng.random((size, size)) < p) & disc
            maps.append(np.stack([disc & ~fail, fail]).astype(np.float32))
            labels.append(k)
        self.maps, self.labels = torch.from_numpy(np.stack(maps)), torch.tensor(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.maps[i], self.labels[i]


def build_model():
    return nn.Sequential(
        nn.Conv2d(2, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32 * 25, 64),
        nn.ReLU(),
        nn.Linear(64, len(PATTERNS)),
    )


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def save(path, model, optimizer, scheduler, step, epoch):
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "step": step,
            "epoch": epoch,
            "rng": torch.get_rng_state(),
        },
        path,
    )


def evaluate(model, loader):
    model.eval()
    ok = n = 0
    with torch.no_grad():
        for x, y in loader:
            ok += (model(x).argmax(1) == y).sum().item()
            n += len(y)
    return ok / n


def run_job(args, path, stop_at):
    seed_everything(args.seed)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    step, epoch = 0, 0
    if os.path.exists(path):
        ckpt = torch.load(path)
        model.load_state_dict(ckpt["model"])
        optimizer.load_state_dict(ckpt["optimizer"])
        scheduler.load_state_dict(ckpt["scheduler"])
        step, epoch = ckpt["step"], ckpt["epoch"]
        torch.set_rng_state(ckpt["rng"])
        print(f"resumed at step {step}")

    data = WaferMaps()
    n_val = len(data) // 5
    split_rng = None
    if args.fixed:
        split_rng = torch.Generator().manual_seed(args.seed)
    train_set, val_set = random_split(
        data, [len(data) - n_val, n_val], generator=split_rng or torch.default_generator
    )
    train_loader = DataLoader(train_set, batch_size=24, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=90)

    criterion = nn.CrossEntropyLoss()
    while step < stop_at:
        model.train()
        total, count = 0.0, 0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total, count, step = total + loss.item(), count + 1, step + 1
            if step >= stop_at:
                break
        epoch += 1
        print(
            f"epoch {epoch:2d} step {step:4d} loss {total / count:.4f} val acc {evaluate(model, val_loader):.4f}"
        )
        save(path, model, optimizer, scheduler, step, epoch)
    return set(train_set.indices), set(val_set.indices)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        first = run_job(args, path, max(1, args.steps // 2))
        second = run_job(args, path, args.steps)

    if args.prove:
        mixed = first[0] & second[1]
        print(
            f"{len(mixed)} of {len(second[1])} validation wafers were in the training set of the first job"
        )
        print("fault shows:", "yes" if mixed else "no")


if __name__ == "__main__":
    main()
