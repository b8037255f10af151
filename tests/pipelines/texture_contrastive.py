"""SimCLR style pretraining on colour textures + linear probe with frozen encoder."""
import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    steps: int = 120
    batch_size: int = 64
    temperature: float = 0.2
    lr: float = 0.3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    warmup: int = 10
    probe_epochs: int = 20
    seed: int = 21


N_CLASSES = 6


def make_textures(n, g):
    y = torch.randint(0, N_CLASSES, (n,), generator=g)
    lin = torch.arange(24.0)
    yy, xx = torch.meshgrid(lin, lin, indexing="ij")
    ph = torch.rand(n, 2, 1, 1, generator=g) * 6.28
    fx = torch.tensor([0.3, 0.9, 0.0, 0.6, 0.9, 1.4])[y].view(-1, 1, 1)
    fy = torch.tensor([0.3, 0.0, 0.9, 0.6, 0.9, 1.4])[y].view(-1, 1, 1)
    a = torch.cos(fx * xx + ph[:, 0]) * torch.cos(fy * yy + ph[:, 1])
    color = (
        torch.rand(n, 3, 1, 1, generator=g) * 0.8 + 0.2
    )  # colour says nothing about the class
    img = (
        0.5
        + 0.4 * a.unsqueeze(1) * color
        + 0.12 * torch.randn(n, 3, 24, 24, generator=g)
    )
    return img, y


class Augment:
    """random crop to 20x20, flips, channel jitter, noise. Per sample."""

    def __init__(self, size=20):
        self.size = size

    def __call__(self, x):
        n, _, h, w = x.shape
        top = torch.randint(0, h - self.size + 1, (n,))
        left = torch.randint(0, w - self.size + 1, (n,))
        rows = top[:, None] + torch.arange(self.size)
        cols = left[:, None] + torch.arange(self.size)
        flip = torch.rand(n) < 0.5
        cols[flip] = cols[flip].flip(1)
        out = x[
            torch.arange(n)[:, None, None, None],
            torch.arange(3)[None, :, None, None],
            rows[:, None, :, None],
            cols[:, None, None, :],
        ]
        gain = torch.empty(n, 3, 1, 1).uniform_(0.6, 1.4)
        shift = torch.empty(n, 3, 1, 1).uniform_(-0.15, 0.15)
        return out * gain + shift + 0.05 * torch.randn_like(out)


def center_crop(x, size=20):
    o = (x.shape[-1] - size) // 2
    return x[..., o : o + size, o : o + size]


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, dim, 3, 2, 1, bias=False),
            nn.BatchNorm2d(dim),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.dim = dim

    def forward(self, x):
        return self.net(x)


class SimCLR(nn.Module):
    def __init__(self, encoder, proj=32):
        super().__init__()
        self.encoder = encoder
        self.projector = nn.Sequential(
            nn.Linear(encoder.dim, encoder.dim), nn.ReLU(), nn.Linear(encoder.dim, proj)
        )

    def forward(self, x):
        return F.normalize(self.projector(self.encoder(x)), dim=1)


def nt_xent(z, temperature):
    """z: 2N x d, rows i and i+N are the two views of picture i"""
    n = z.size(0) // 2
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    loss = F.cross_entropy(sim, target)
    top1 = (sim.argmax(1) == target).float().mean()
    return loss, top1


def pretrain(model, images, cfg):
    decay = [p for p in model.parameters() if p.ndim > 1]
    other = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.SGD(
        [{"params": decay, "weight_decay": cfg.weight_decay}, {"params": other}],
        lr=cfg.lr,
        momentum=cfg.momentum,
    )
    warmup = max(1, min(cfg.warmup, cfg.steps // 2))
    sched = torch.optim.lr_scheduler.SequentialLR(
        opt,
        [
            torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=warmup),
            torch.optim.lr_scheduler.CosineAnnealingLR(
                opt, T_max=max(1, cfg.steps - warmup), eta_min=1e-3
            ),
        ],
        milestones=[warmup],
    )
    augment = Augment()
    model.train()
    step = 0
    while step < cfg.steps:
        perm = torch.randperm(len(images))
        for i in range(len(images) // cfg.batch_size):
            x = images[perm[i * cfg.batch_size : (i + 1) * cfg.batch_size]]
            z = model(torch.cat([augment(x), augment(x)]))
            loss, top1 = nt_xent(z, cfg.temperature)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            if step % 20 == 0:
                print(
                    f"pretrain {step}: nt-xent {loss.item():.3f} "
                    f"(chance {math.log(2 * cfg.batch_size - 1):.3f}) top1 {top1.item():.3f}"
                )
            if step == cfg.steps:
                return


@torch.no_grad()
def embed(encoder, images):
    encoder.eval()
    return torch.cat([encoder(center_crop(b)) for b in images.split(128)])


def linear_probe(encoder, train, test, cfg):
    (xtr, ytr), (xte, yte) = train, test
    ftr, fte = embed(encoder, xtr), embed(encoder, xte)
    mu, sd = ftr.mean(0), ftr.std(0) + 1e-5
    ftr, fte = (ftr - mu) / sd, (fte - mu) / sd
    clf = nn.Linear(ftr.size(1), N_CLASSES)
    opt = torch.optim.Adam(clf.parameters(), lr=1e-2)
    for _ in range(cfg.probe_epochs):
        for idx in torch.randperm(len(ftr)).split(100):
            opt.zero_grad()
            F.cross_entropy(clf(ftr[idx]), ytr[idx]).backward()
            opt.step()
    with torch.no_grad():
        return (clf(fte).argmax(1) == yte).float().mean().item()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    ap.add_argument("--seed", type=int, default=Config.seed)
    cfg = Config(**vars(ap.parse_args()))
    torch.manual_seed(cfg.seed)
    g = torch.Generator().manual_seed(cfg.seed)
    unlabeled, _ = make_textures(1280, g)
    labeled, test = make_textures(200, g), make_textures(400, g)

    encoder = Encoder()
    print(f"probe on random encoder: {linear_probe(encoder, labeled, test, cfg):.3f}")
    pretrain(SimCLR(encoder), unlabeled, cfg)
    print(f"probe after pretraining: {linear_probe(encoder, labeled, test, cfg):.3f}")
