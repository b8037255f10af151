#!/usr/bin/env python
# Precipitation nowcasting: 4 radar frames in, 2 frames out.
# Micro-batches of 4 storms sequences, gradients accumulated (the real 512x512 tiles don't fit).
import argparse
import logging
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("nowcast")


@dataclass
class Config:
    size: int = 32
    frames_in: int = 4
    frames_out: int = 2
    n_storms: int = 60
    clips_per_storm: int = 6
    micro_batch: int = 4
    accumulate: int = 4
    epochs: int = 5
    max_lr: float = 4e-3
    seed: int = 2021


def simulate_storm(cfg, rng):
    """One storm: several cells drifting with a common wind, growing or decaying."""
    length = cfg.frames_in + cfg.frames_out + cfg.clips_per_storm - 1
    yy, xx = np.mgrid[0 : cfg.size, 0 : cfg.size].astype(np.float32)
    wind = rng.normal(0, 1.3, size=2)
    cells = rng.integers(2, 5)
    centre = rng.uniform(4, cfg.size - 4, size=(cells, 2))
    width = rng.uniform(2.0, 4.5, size=cells)
    power = rng.uniform(2.0, 12.0, size=cells)
    growth = rng.normal(0, 0.06, size=cells)
    frames = []
    for t in range(length):
        field = np.zeros_like(xx)
        for c in range(cells):
            cy, cx = centre[c] + wind * t
            field += (
                power[c]
                * np.exp(growth[c] * t)
                * np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / (2 * width[c] ** 2))
            )
        frames.append(np.maximum(field + rng.normal(0, 0.05, field.shape), 0))
    return np.stack(frames).astype(np.float32)


def clips_of(storms, cfg):
    span = cfg.frames_in + cfg.frames_out
    clips = np.stack(
        [s[i : i + span] for s in storms for i in range(cfg.clips_per_storm)]
    )
    clips = torch.from_numpy(np.log1p(clips))  # mm/h -> log(1 + R)
    return TensorDataset(clips[:, : cfg.frames_in], clips[:, cfg.frames_in :])


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.GroupNorm(4, cout),
        nn.SiLU(),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.GroupNorm(4, cout),
        nn.SiLU(),
    )


class SmallUNet(nn.Module):
    def __init__(self, cin, cout, w=16):
        super().__init__()
        self.enc1, self.enc2, self.mid = (
            block(cin, w),
            block(w, 2 * w),
            block(2 * w, 2 * w),
        )
        self.dec2, self.dec1 = block(4 * w, w), block(2 * w, w)
        self.out = nn.Conv2d(w, cout, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        d = self.dec2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        e = self.dec1(torch.cat([F.interpolate(d, scale_factor=2), a], 1))
        # forecast the change relative to the last observed frame
        return x[:, -1:] + self.out(e)


def rain_weighted_error(pred, target):
    """Absolute error, heavier where it rains; one value per clip."""
    weight = 1.0 + 2.0 * target
    return (weight * (pred - target).abs()).flatten(1).mean(1)


def run_epoch(model, loader, optimizer, scheduler, accumulate):
    model.train()
    total, seen = 0.0, 0
    batches = list(loader)
    for start in range(0, len(batches), accumulate):
        group = batches[start : start + accumulate]
        n_group = sum(len(x) for x, _ in group)
        optimizer.zero_grad(set_to_none=True)
        for x, y in group:
            loss = rain_weighted_error(model(x), y).sum() / n_group
            loss.backward()
            total += loss.item() * n_group
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        seen += n_group
    return total / seen


@torch.no_grad()
def verify(model, loader, threshold=np.log1p(2.0)):
    model.eval()
    err = persist = n = hits = misses = false_alarms = 0
    for x, y in loader:
        p = model(x)
        err += rain_weighted_error(p, y).sum().item()
        persist += rain_weighted_error(x[:, -1:].expand_as(y), y).sum().item()
        n += len(x)
        f, o = p >= threshold, y >= threshold
        hits += (f & o).sum().item()
        misses += (~f & o).sum().item()
        false_alarms += (f & ~o).sum().item()
    return err / n, persist / n, hits / max(1, hits + misses + false_alarms)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    storms = [simulate_storm(cfg, rng) for _ in range(cfg.n_storms)]
    cut = int(0.8 * cfg.n_storms)  # by storm: clips of one storm overlap
    train = DataLoader(clips_of(storms[:cut], cfg), cfg.micro_batch, shuffle=True)
    valid = DataLoader(clips_of(storms[cut:], cfg), 32)

    model = SmallUNet(cfg.frames_in, cfg.frames_out)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.max_lr)
    updates = -(-len(train) // cfg.accumulate) * cfg.epochs
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=cfg.max_lr, total_steps=updates
    )
    for epoch in range(cfg.epochs):
        loss = run_epoch(model, train, optimizer, scheduler, cfg.accumulate)
        err, persist, csi = verify(model, valid)
        log.info(
            "epoch %d train %.4f valid %.4f (persistence %.4f) CSI@2mm %.3f",
            epoch,
            loss,
            err,
            persist,
            csi,
        )


if __name__ == "__main__":
    main()
