"""Self-supervised features from near-infrared bark scans.

An online encoder is asked to predict the view seen by a slowly moving copy of itself.
The linear predictor between the two follows the spectrum of the feature correlation.
"""
import argparse
import copy
import logging
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

LOG = logging.getLogger("barks")
BANDS, SPECIES = 64, 6


def make_scans(per_species, seed):
    g = torch.Generator().manual_seed(seed)
    shape = torch.Generator().manual_seed(77)
    axis = torch.linspace(0, 1, BANDS)
    scans, labels = [], []
    for k in range(SPECIES):
        centre = 0.15 + 0.7 * torch.rand(4, generator=shape)
        width = 0.03 + 0.05 * torch.rand(4, generator=shape)
        depth = 0.4 + 0.6 * torch.rand(4, generator=shape)
        wobble = 1 + 0.25 * torch.randn(per_species, 4, 1, generator=g)
        drift = 0.015 * torch.randn(per_species, 1, 1, generator=g)
        peaks = torch.exp(
            -0.5 * ((axis - centre[:, None] - drift) / width[:, None]) ** 2
        )
        scan = -(wobble * depth[:, None] * peaks).sum(1)
        tilt = torch.randn(per_species, 2, 1, generator=g)
        scan = scan + 1.2 * tilt[:, 0] + 1.2 * tilt[:, 1] * (axis - 0.5)
        scan = scan + 0.08 * torch.randn(per_species, BANDS, generator=g)
        scans.append(scan)
        labels.append(torch.full((per_species,), k))
    order = torch.randperm(per_species * SPECIES, generator=g)
    return torch.cat(scans)[order], torch.cat(labels)[order]


class Jitter:
    """Offset, tilt, gain, sensor noise, a small roll and a hidden band."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def __call__(self, x):
        n = x.shape[0]
        rand = lambda *s: torch.randn(*s, generator=self.g)
        axis = torch.linspace(-0.5, 0.5, BANDS)
        x = x * (1 + 0.15 * rand(n, 1)) + 1.2 * rand(n, 1) + 1.2 * rand(n, 1) * axis
        x = x + 0.1 * rand(n, BANDS)
        roll = torch.randint(-1, 2, (n, 1), generator=self.g)
        x = x.gather(1, (torch.arange(BANDS) + roll) % BANDS)
        start = torch.randint(0, BANDS - 8, (n, 1), generator=self.g)
        band = torch.arange(BANDS)
        hidden = (band >= start) & (band < start + 8)
        return torch.where(hidden, x.mean(1, keepdim=True), x)


class Encoder(nn.Module):
    def __init__(self, width=24, out=48):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(1, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(inplace=True),
            nn.AvgPool1d(4),
            nn.Flatten(),
        )
        self.project = nn.Sequential(
            nn.Linear(2 * width * 4, 96, bias=False),
            nn.BatchNorm1d(96),
            nn.ReLU(inplace=True),
            nn.Linear(96, out),
        )

    def features(self, x):
        return self.trunk(x[:, None])

    def forward(self, x):
        return self.project(self.features(x))


class SpectralPredictor(nn.Module):
    """W = U diag(sqrt(s) + floor) U^T, from a running correlation of the inputs."""

    def __init__(self, dim, rho=0.3, floor=0.2):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dim), requires_grad=False)
        self.register_buffer("corr", torch.eye(dim) / dim)
        self.rho, self.floor = rho, floor

    @torch.no_grad()
    def refresh(self, f):
        f = F.normalize(f, dim=1)
        self.corr.lerp_(f.T @ f / f.shape[0], self.rho)
        values, vectors = torch.linalg.eigh(self.corr)
        values = values.clamp_min(0).sqrt()
        values = values / values.max() + self.floor
        self.weight.copy_(vectors * values @ vectors.T)

    def forward(self, f):
        return f @ self.weight


def regression_loss(p, z):
    return 2 - 2 * F.cosine_similarity(p, z, dim=1).mean()


class Pretrainer:
    def __init__(self, steps, seed):
        self.online = Encoder()
        self.slow = copy.deepcopy(self.online).requires_grad_(False)
        self.predictor = SpectralPredictor(48)
        self.optimizer = torch.optim.SGD(
            self.online.parameters(), lr=0.06, momentum=0.9, weight_decay=4e-4
        )
        self.lr_at = lambda t: 0.03 * (1 + math.cos(math.pi * t / steps))
        self.steps, self.jitter = steps, Jitter(seed)

    def step(self, t, x):
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr_at(t)
        a, b = self.jitter(x), self.jitter(x)
        fa, fb = self.online(a), self.online(b)
        self.predictor.refresh(torch.cat([fa, fb]).detach())
        with torch.no_grad():
            za, zb = self.slow(a), self.slow(b)
        loss = regression_loss(self.predictor(fa), zb)
        loss = 0.5 * (loss + regression_loss(self.predictor(fb), za))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        tau = 1 - 0.01 * (1 + math.cos(math.pi * t / self.steps)) / 2
        with torch.no_grad():
            for s, o in zip(self.slow.parameters(), self.online.parameters()):
                s.lerp_(o, 1 - tau)
        return loss.item(), F.normalize(fa.detach(), dim=1).std(0).mean().item()


@torch.no_grad()
def embed(encoder, x):
    was = encoder.training
    encoder.eval()
    out = torch.cat([encoder.features(part) for part in x.split(256)])
    encoder.train(was)
    return out


def probe(encoder, train, test, ridge=1e-1):
    """Closed-form linear read-out on frozen features, a few labelled scans per species."""
    fx, fy = embed(encoder, train[0]), embed(encoder, test[0])
    mean, std = fx.mean(0), fx.std(0) + 1e-5
    fx, fy = (fx - mean) / std, (fy - mean) / std
    target = F.one_hot(train[1], SPECIES).float() - 1 / SPECIES
    gram = fx.T @ fx + ridge * len(fx) * torch.eye(fx.shape[1])
    weights = torch.linalg.solve(gram, fx.T @ target)
    return ((fy @ weights).argmax(1) == test[1]).float().mean().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--batch", type=int, default=96)
    cli.add_argument("--seed", type=int, default=21)
    args = cli.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(message)s")
    torch.manual_seed(args.seed)

    unlabelled, _ = make_scans(200, args.seed)
    few, valid, test = (
        make_scans(n, args.seed + i) for i, n in ((1, 6), (2, 40), (3, 80))
    )
    trainer = Pretrainer(args.steps, args.seed + 9)
    LOG.info("probe before pretraining %.3f", probe(trainer.online, few, valid))

    order = torch.Generator().manual_seed(args.seed + 5)
    queue = []
    for t in range(args.steps):
        if len(queue) == 0:
            shuffled = torch.randperm(len(unlabelled), generator=order)
            queue = [b for b in shuffled.split(args.batch) if len(b) == args.batch]
        loss, spread = trainer.step(t, unlabelled[queue.pop()])
        if (t + 1) % max(1, args.steps // 6) == 0:
            acc = probe(trainer.online, few, valid)
            LOG.info("%4d loss %.4f spread %.3f probe %.3f", t + 1, loss, spread, acc)

    path = os.path.join(tempfile.mkdtemp(prefix="barks_"), "encoder.pt")
    torch.save(trainer.online.trunk.state_dict(), path)
    LOG.info("test probe %.3f", probe(trainer.online, few, test))


if __name__ == "__main__":
    main()
