"""Restoration of pictures like those of a microscope; the error is in its units.

After CAREamics/careamics, issue 967.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    patch: int = 16
    n_train: int = 640
    n_val: int = 128
    n_test: int = 128
    batch_size: int = 32
    epochs: int = 6
    lr: float = 4e-3
    channels: int = 16
    seed: int = 37


def make_pairs(n, cfg, seed):
    """Frames of a low dose (counts), and those of a high one in another gain."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[: cfg.patch, : cfg.patch]
    clean = np.zeros((n, cfg.patch, cfg.patch))
    for i in range(n):
        for _ in range(rng.integers(2, 5)):
            cy, cx, r = rng.uniform(0, cfg.patch, 2).tolist() + [rng.uniform(1.2, 3.0)]
            clean[i] += rng.uniform(0.4, 1.0) * np.exp(
                -((yy - cy) ** 2 + (xx - cx) ** 2) / (2 * r * r)
            )
    image = rng.poisson(12 * clean + 3) / 12 + 0.05 * rng.standard_normal(clean.shape)
    target = 0.35 + 1.5 * clean + 0.02 * rng.standard_normal(clean.shape)
    return image.astype(np.float32)[:, None], target.astype(np.float32)[:, None]


class MeanStdNormalization:
    def __init__(self, image_mean, image_std, target_mean, target_std):
        self.image_mean, self.image_std = image_mean, image_std
        self.target_mean, self.target_std = target_mean, target_std

    def __call__(self, image, target):
        return (image - self.image_mean) / self.image_std, (
            target - self.target_mean
        ) / self.target_std

    def denormalize_a(self, patch):
        return patch * self.image_std + self.image_mean

    def denormalize_b(self, patch):
        return patch * self.target_std + self.target_mean


class PairDataset(Dataset):
    def __init__(self, image, target, norm, augment=False):
        self.image, self.target, self.norm, self.augment = image, target, norm, augment

    def __len__(self):
        return len(self.image)

    def __getitem__(self, i):
        x, y = self.norm(self.image[i], self.target[i])
        x, y = torch.from_numpy(x), torch.from_numpy(y)
        if self.augment and torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        return x, y, torch.from_numpy(self.target[i])


class UNetLite(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.d1 = nn.Sequential(
            nn.Conv2d(1, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU()
        )
        self.d2 = nn.Sequential(
            nn.Conv2d(c, 2 * c, 3, padding=1), nn.BatchNorm2d(2 * c), nn.ReLU()
        )
        self.up = nn.Conv2d(2 * c, c, 1)
        self.out = nn.Sequential(
            nn.Conv2d(2 * c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, 1, 1)
        )

    def forward(self, x):
        a = self.d1(x)
        b = self.up(F.interpolate(self.d2(F.max_pool2d(a, 2)), scale_factor=2.0))
        return self.out(torch.cat([a, b], 1))


@torch.no_grad()
def predict_rmse(model, loader, denormalize):
    model.eval()
    se, loss, n = 0.0, 0.0, 0
    for x, y, raw in loader:
        pred = model(x)
        loss += F.mse_loss(pred, y).item() * len(x)
        se += F.mse_loss(denormalize(pred), raw).item() * len(x)
        n += len(x)
    return loss / n, (se / n) ** 0.5


def train(cfg, back):
    torch.manual_seed(cfg.seed)
    sets = [
        make_pairs(n, cfg, s)
        for n, s in ((cfg.n_train, 1), (cfg.n_val, 2), (cfg.n_test, 3))
    ]
    im, tg = sets[0]
    norm = MeanStdNormalization(im.mean(), im.std(), tg.mean(), tg.std())
    denormalize = getattr(norm, back)
    train_loader = DataLoader(
        PairDataset(*sets[0], norm, augment=True),
        cfg.batch_size,
        shuffle=True,
        drop_last=True,
    )
    val_loader = DataLoader(PairDataset(*sets[1], norm), 64)
    test_loader = DataLoader(PairDataset(*sets[2], norm), 64)
    model = UNetLite(cfg.channels)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
    best = float("inf")
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "best.ckpt")
        for epoch in range(cfg.epochs):
            model.train()
            running = 0.0
            for x, y, _ in train_loader:
                opt.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                opt.step()
                running += loss.item()
            _, rmse = predict_rmse(model, val_loader, denormalize)
            sched.step(rmse)
            if rmse < best:
                best = rmse
                torch.save({"model": model.state_dict(), "epoch": epoch}, path)
            train_loss, lr = running / len(train_loader), opt.param_groups[0]["lr"]
            line = f"epoch {epoch} train_loss {train_loss:.4f} val_rmse {rmse:.4f}"
            print(f"{line} lr {lr:.1e}", flush=True)
        ckpt = torch.load(path)
    model.load_state_dict(ckpt["model"])
    loss, rmse = predict_rmse(model, test_loader, denormalize)
    print(
        f"best epoch {ckpt['epoch']}: test_rmse {rmse:.4f} (normalised loss {loss:.4f})"
    )
    return rmse, loss, norm.target_std


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, epochs=args.epochs, lr=args.lr)
    rmse, loss, scale = train(cfg, "denormalize_b" if args.fixed else "denormalize_a")
    if args.prove:
        true = scale * loss**0.5
        print(f"error of the test {rmse:.4f}, by the loss it is {true:.4f}")
        print("fault shows:", "yes" if abs(rmse - true) > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
