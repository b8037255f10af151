"""
Multi-task net for a driver camera: head pose (regression, 2 values), eyes closed (binary, rare) and
driver id (classification, labelled for about half of the pictures only).
The losses are balanced with learned log-variances (Kendall et al.).
"""
import argparse
from collections import defaultdict
from typing import Dict, NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

IGNORE = -100
N_DRIVERS = 6


class Batch(NamedTuple):
    image: Tensor
    pose: Tensor
    closed: Tensor
    driver: Tensor


def render(n: int, seed: int, faces: np.ndarray, labelled: float) -> Batch:
    rng = np.random.default_rng(seed)
    S = 28
    yy, xx = np.mgrid[0:S, 0:S]
    driver = rng.integers(0, N_DRIVERS, n)
    pose = rng.uniform(-1, 1, (n, 2))
    closed = rng.random(n) < 0.2
    imgs = np.empty((n, 1, S, S), np.float32)
    for i in range(n):
        width, height, tone = faces[driver[i]]
        cy, cx = 14 + 3 * pose[i, 0], 14 + 3 * pose[i, 1]
        face = ((yy - cy) / height) ** 2 + ((xx - cx) / width) ** 2 < 1
        img = 0.15 + tone * face
        for side in (-1, 1):
            ey, ex = cy - 2 + pose[i, 0], cx + 3.5 * side + pose[i, 1]
            tall = 0.7 if closed[i] else 1.9
            img[(np.abs(yy - ey) < tall) & (np.abs(xx - ex) < 1.9)] = 0.0
        imgs[i, 0] = img + rng.normal(0, 0.05, img.shape)
    driver = np.where(rng.random(n) < labelled, driver, IGNORE)
    return Batch(
        torch.from_numpy(imgs),
        torch.tensor(pose, dtype=torch.float32),
        torch.tensor(closed, dtype=torch.float32),
        torch.tensor(driver, dtype=torch.long),
    )


def iterate(data: Batch, batch_size: int, generator=None):
    n = len(data.image)
    order = (
        torch.randperm(n, generator=generator)
        if generator is not None
        else torch.arange(n)
    )
    for idx in order.split(batch_size):
        yield Batch(*(t[idx] for t in data))


class MultiTaskNet(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.1),
            nn.Conv2d(2 * width, 2 * width, 3, 2, 1),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(2 * width * 16, 64),
            nn.LeakyReLU(0.1),
        )
        self.heads = nn.ModuleDict(
            {
                "pose": nn.Linear(64, 2),
                "closed": nn.Linear(64, 1),
                "driver": nn.Sequential(nn.Dropout(0.2), nn.Linear(64, N_DRIVERS)),
            }
        )

    def forward(self, x) -> Dict[str, Tensor]:
        z = self.trunk(x)
        return {k: head(z) for k, head in self.heads.items()}


class UncertaintyWeights(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.log_var = nn.ParameterDict(
            {t: nn.Parameter(torch.zeros(())) for t in tasks}
        )

    def forward(self, losses: Dict[str, Tensor]) -> Tensor:
        return sum(
            torch.exp(-self.log_var[t]) * l + 0.5 * self.log_var[t]
            for t, l in losses.items()
        )


def compute_losses(
    out: Dict[str, Tensor], b: Batch, pos_weight: Tensor
) -> Dict[str, Tensor]:
    losses = {
        "pose": 0.5 * F.mse_loss(out["pose"], b.pose),
        "closed": F.binary_cross_entropy_with_logits(
            out["closed"].squeeze(1), b.closed, pos_weight=pos_weight
        ),
    }
    if (b.driver != IGNORE).any():
        losses["driver"] = F.cross_entropy(out["driver"], b.driver, ignore_index=IGNORE)
    return losses


@torch.no_grad()
def validate(net: nn.Module, data: Batch) -> Dict[str, float]:
    net.eval()
    abs_err, tp, fp, fn, id_ok, id_n = 0.0, 0, 0, 0, 0, 0
    for b in iterate(data, 128):
        out = net(b.image)
        abs_err += (out["pose"] - b.pose).abs().sum().item()
        pred, true = out["closed"].squeeze(1) > 0, b.closed > 0.5
        tp += (pred & true).sum().item()
        fp += (pred & ~true).sum().item()
        fn += (~pred & true).sum().item()
        known = b.driver != IGNORE
        id_ok += (out["driver"].argmax(1)[known] == b.driver[known]).sum().item()
        id_n += known.sum().item()
    return {
        "pose_mae": abs_err / data.pose.numel(),
        "closed_f1": 2 * tp / max(1, 2 * tp + fp + fn),
        "driver_acc": id_ok / max(1, id_n),
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--batch-size", type=int, default=48)
    cfg = ap.parse_args()

    torch.manual_seed(99)
    gen = torch.Generator().manual_seed(99)
    faces = np.random.default_rng(0).uniform(
        [6.5, 8.0, 0.35], [9.5, 11.5, 0.8], (N_DRIVERS, 3)
    )
    train = render(1200, 1, faces, labelled=0.5)
    valid = render(400, 2, faces, labelled=1.0)

    net = MultiTaskNet()
    weights = UncertaintyWeights(["pose", "closed", "driver"])
    n_pos = train.closed.sum()
    pos_weight = (len(train.closed) - n_pos) / n_pos  # from the training labels

    opt = torch.optim.AdamW(
        [
            {"params": net.parameters(), "lr": 2e-3, "weight_decay": 1e-3},
            {"params": weights.parameters(), "lr": 1e-2, "weight_decay": 0.0},
        ]
    )
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.85)

    print("before training", {k: round(v, 3) for k, v in validate(net, valid).items()})
    for epoch in range(cfg.epochs):
        net.train()
        meter, counts = defaultdict(float), defaultdict(int)
        for b in iterate(train, cfg.batch_size, gen):
            losses = compute_losses(net(b.image), b, pos_weight)
            loss = weights(losses)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            opt.step()
            for k, v in losses.items():
                meter[k] += v.item()
                counts[k] += 1
        sched.step()
        scores = validate(net, valid)
        print(
            f"[{epoch + 1:02d}] "
            + " ".join(f"{k}={meter[k] / counts[k]:.3f}" for k in meter)
            + " | "
            + " ".join(f"{k}={v:.3f}" for k, v in scores.items())
            + " | s="
            + ",".join(f"{p.item():.2f}" for p in weights.parameters())
        )


if __name__ == "__main__":
    main()
