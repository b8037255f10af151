"""Trajectory planner that denoises candidate paths given lane and neighbours."""
import argparse
import copy
import json
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    MultiplicativeLR,
    SequentialLR,
)
from torch.utils.data import DataLoader, TensorDataset

FUTURE, LANE, NEIGHBOURS = 16, 12, 4


def build_scenes(n, seed):
    """Driving scenes: a curved lane, parked neighbours and the human's path."""
    g = torch.Generator().manual_seed(seed)
    curve = 0.5 * torch.randn(n, 1, generator=g)
    speed = 0.8 + 0.5 * torch.rand(n, 1, generator=g)
    s_lane = torch.linspace(0, 2, LANE)[None]
    lane = torch.stack([s_lane.expand(n, -1), 0.5 * curve * s_lane**2], -1)
    s_obj = 0.3 + 1.6 * torch.rand(n, NEIGHBOURS, generator=g)
    d_obj = 0.35 * torch.randn(n, NEIGHBOURS, generator=g)
    objs = torch.stack([s_obj, 0.5 * curve * s_obj**2 + d_obj], -1)
    t = torch.linspace(0, 1, FUTURE + 1)[None, 1:]
    s = speed * t + 0.3 * t**2
    near = torch.exp(-((s[..., None] - s_obj[:, None]) ** 2) / 0.08)
    close = torch.exp(-(d_obj**2) / 0.06) * torch.where(d_obj > 0, -1.0, 1.0)
    shift = 0.25 * torch.tanh((near * close[:, None]).sum(-1))
    path = torch.stack([s, 0.5 * curve * s**2 + shift], -1)
    path = path + 0.01 * torch.randn(path.shape, generator=g)
    return lane, objs, speed, path


class SceneEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lane = nn.Sequential(nn.Linear(2, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.obj = nn.Sequential(nn.Linear(2, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.ego = nn.Linear(1, dim)

    def forward(self, lane, objs, speed):
        tokens = [self.lane(lane), self.obj(objs), self.ego(speed)[:, None]]
        return torch.cat(tokens, 1)


class PathDenoiser(nn.Module):
    def __init__(self, dim=48, heads=4):
        super().__init__()
        self.encoder = SceneEncoder(dim)
        self.point = nn.Linear(2, dim)
        self.order = nn.Parameter(0.02 * torch.randn(FUTURE, dim))
        self.noise_level = nn.Sequential(nn.Linear(1, dim), nn.SiLU())
        self.look = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.along = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * dim, 2)

    def forward(self, noisy, level, lane, objs, speed):
        scene = self.encoder(lane, objs, speed)
        x = self.point(noisy) + self.order + self.noise_level(level)[:, None]
        q = self.norm1(x)
        x = x + self.look(q, scene, scene, need_weights=False)[0]
        return self.head(self.along(self.norm2(x))[0])


class PathNoise:
    """Variance-preserving noise; paths are brought to unit scale first."""

    def __init__(self, paths):
        self.mean = paths.mean((0, 1))
        self.std = paths.std((0, 1))

    def to_unit(self, path):
        return (path - self.mean) / self.std

    def to_metres(self, unit):
        return unit * self.std + self.mean

    @staticmethod
    def corrupt(unit, level, noise):
        a = torch.cos(level * math.pi / 2)[:, :, None]
        return a * unit + torch.sin(level * math.pi / 2)[:, :, None] * noise


def CosineAnnealingWarmUpRestarts(optimizer, epoch, warm_up_epoch, start_factor=0.1):
    warmup = LinearLR(optimizer, start_factor=start_factor, total_iters=warm_up_epoch)
    main = MultiplicativeLR(optimizer, lr_lambda=lambda epoch: 1.0)
    return SequentialLR(optimizer, [warmup, main], milestones=[warm_up_epoch])


def WarmUpCosineAnnealing(optimizer, epoch, warm_up_epoch, start_factor=0.1):
    warmup = LinearLR(optimizer, start_factor=start_factor, total_iters=warm_up_epoch)
    main = CosineAnnealingLR(optimizer, T_max=epoch - warm_up_epoch)
    return SequentialLR(optimizer, [warmup, main], milestones=[warm_up_epoch])


def build_scheduler(optimizer, args):
    make = CosineAnnealingWarmUpRestarts
    if args.fixed:
        make = WarmUpCosineAnnealing
    return make(optimizer, args.epochs, min(args.warm_up_epoch, args.epochs - 1))


class ModelEma:
    def __init__(self, model, decay=0.95):
        self.ema, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.ema.state_dict().values(), model.state_dict().values()):
            e.mul_(self.decay).add_(p, alpha=1 - self.decay)


def train_epoch(model, ema, loader, noise, optimizer, gen):
    model.train()
    total = 0.0
    for lane, objs, speed, path in loader:
        unit = noise.to_unit(path)
        level = torch.rand(len(path), 1, generator=gen)
        eps = torch.randn(unit.shape, generator=gen)
        pred = model(noise.corrupt(unit, level, eps), level, lane, objs, speed)
        loss = F.smooth_l1_loss(pred, unit)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        ema.update(model)
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def plan(model, noise, scene, n_steps=4, seed=0):
    gen = torch.Generator().manual_seed(seed)
    n = len(scene[0])
    eps = torch.randn(n, FUTURE, 2, generator=gen)
    x = eps
    for i in range(n_steps):
        level = torch.full((n, 1), 1 - i / n_steps)
        unit = model(x, level, *scene)
        after = torch.full((n, 1), 1 - (i + 1) / n_steps)
        x = noise.corrupt(unit, after, eps)
    return noise.to_metres(unit)


def validate(model, noise, scenes):
    *scene, path = scenes
    model.eval()
    dist = (plan(model, noise, scene) - path).norm(dim=-1)
    return {"ADE": dist.mean().item(), "FDE": dist[:, -1].mean().item()}


def prove(args):
    """Last learning rate of the schedule, relative to its peak."""
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=args.lr)
    scheduler = build_scheduler(optimizer, args)
    rates = []
    for _ in range(args.epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    ratio = rates[-1] / max(rates)
    print(f"learning rate of the last epoch / peak {ratio:.3f}")
    print("fault shows:", "yes" if ratio > 0.5 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--warm_up_epoch", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=3407)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_scenes, valid_scenes = build_scenes(1280, 1), build_scenes(400, 2)
    noise = PathNoise(train_scenes[-1])
    loader = DataLoader(
        TensorDataset(*train_scenes), args.batch_size, shuffle=True, drop_last=True
    )
    model = PathDenoiser()
    ema = ModelEma(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = build_scheduler(optimizer, args)
    gen = torch.Generator().manual_seed(args.seed + 1)
    with tempfile.TemporaryDirectory() as tmp:
        save_dir, history = Path(tmp), []
        for epoch in range(args.epochs):
            loss = train_epoch(model, ema, loader, noise, optimizer, gen)
            scheduler.step()
            metrics = {"epoch": epoch, "loss": loss}
            metrics.update(validate(ema.ema, noise, valid_scenes))
            history.append(metrics)
            print(" ".join(f"{k} {round(v, 4)}" for k, v in metrics.items()))
            state = {"model": model.state_dict(), "ema": ema.ema.state_dict()}
            torch.save(state, save_dir / "latest.pth")
            (save_dir / "history.json").write_text(json.dumps(history))
    if args.prove:
        prove(args)


if __name__ == "__main__":
    main()
