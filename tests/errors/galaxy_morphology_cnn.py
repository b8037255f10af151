"""Spiral / elliptical / edge-on / ring galaxies with a small conv net."""
import argparse
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

KINDS = ("elliptical", "spiral", "edge_on", "ring")


def render(n, seed, size=28):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(KINDS), (n,), generator=g)
    lin = torch.linspace(-1, 1, size)
    Y, X = torch.meshgrid(lin, lin, indexing="ij")
    out = torch.empty(n, 1, size, size)
    for i in range(n):
        th = 2 * math.pi * torch.rand(1, generator=g)
        c, s = torch.cos(th), torch.sin(th)
        u, v = c * X + s * Y, -s * X + c * Y
        r, phi = (u**2 + v**2).sqrt(), torch.atan2(v, u)
        if y[i] == 0:
            img = torch.exp(-3 * (u**2 + (v / 0.7) ** 2))
        elif y[i] == 1:
            img = torch.exp(-2 * r) * (1 + torch.cos(2 * phi - 7 * r))
        elif y[i] == 2:
            img = torch.exp(-3 * (u**2 + (v / 0.22) ** 2))
        else:
            img = torch.exp(-40 * (r - 0.5) ** 2) + 0.6 * torch.exp(-20 * r**2)
        out[i, 0] = img
    out += 0.55 * torch.randn(out.shape, generator=g)
    return (out - 0.2) / 0.6, y


class GalaxyCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 5, stride=2, padding=2)
        self.c2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
        self.c3 = nn.Conv2d(24, 32, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(12), nn.BatchNorm2d(24)
        self.fc = nn.Linear(32, len(KINDS))

    def forward(self, x):
        x = F.relu(self.bn1(self.c1(x)))
        x = F.relu(self.bn2(self.c2(x)))
        x = F.relu(self.c3(x))
        return self.fc(x.mean((2, 3)))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.train_x, self.train_y = render(1200, 40)
        self.val_x, self.val_y = render(400, 41)
        self.model = GalaxyCNN()
        self.opt = torch.optim.SGD(
            self.model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=5e-4
        )
        self.steps_per_epoch = len(self.train_x) // cfg.batch_size
        horizon = cfg.epochs * self.steps_per_epoch if cfg.fixed else cfg.epochs
        self.sched = CosineAnnealingLR(self.opt, T_max=horizon)
        self.gen = torch.Generator().manual_seed(cfg.seed + 1)
        self.rates = []

    def loader(self):
        order = torch.randperm(len(self.train_x), generator=self.gen)
        for k in range(self.steps_per_epoch):
            idx = order[k * self.cfg.batch_size : (k + 1) * self.cfg.batch_size]
            yield self.train_x[idx], self.train_y[idx]

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for x, y in self.loader():
            loss = F.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.rates.append(self.opt.param_groups[0]["lr"])
            self.opt.step()
            self.sched.step()
            total += loss.item()
        return total / self.steps_per_epoch

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        logits = self.model(self.val_x)
        return (
            F.cross_entropy(logits, self.val_y).item(),
            (logits.argmax(1) == self.val_y).float().mean().item(),
        )

    def fit(self):
        for epoch in range(self.cfg.epochs):
            tl = self.train_epoch()
            vl, va = self.validate()
            print(
                f"[{epoch + 1}/{self.cfg.epochs}] train {tl:.4f} val {vl:.4f} acc {va:.3f}"
            )
        print(f"finished with val loss {vl:.4f}, accuracy {va:.3f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=7)
    ap.add_argument("--batch-size", type=int, default=50)
    ap.add_argument("--lr", type=float, default=0.08)
    ap.add_argument("--seed", type=int, default=2)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    cfg = ap.parse_args()

    trainer = Trainer(cfg)
    trainer.fit()

    if cfg.prove:
        n = len(trainer.rates)
        ideal = [0.5 * cfg.lr * (1 + math.cos(math.pi * k / n)) for k in range(n)]
        off = max(abs(a - b) for a, b in zip(trainer.rates, ideal))
        ups = sum(b > a for a, b in zip(trainer.rates, trainer.rates[1:]))
        print(
            f"learning rate: largest distance to one half cosine {off:.5f}, {ups} of {n} steps rise"
        )
        print("fault shows:", "yes" if off > 0.05 * cfg.lr else "no")


if __name__ == "__main__":
    main()
