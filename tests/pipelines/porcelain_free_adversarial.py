"""Cracks in porcelain (conv2d), "free" adversarial training.

Each batch is used four times; one backward serves the descent of the weights and the
ascent of the perturbation, which belongs to a place in the batch and is carried over to
the next one, hence `drop_last`. Label smoothing, so the loss has a floor; OneCycleLR
over all uses. The attack of the evaluation has gradients, by `autograd.grad` in
evaluation mode.
"""

import argparse
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS = ("glaze rings", "stress lines", "impact star", "sound")


def plates(n, seed):
    r = np.random.default_rng(seed)
    y = r.integers(0, 4, n)
    yy, xx = np.mgrid[0:16, 0:16]
    img = np.empty((n, 1, 16, 16), np.float32)
    for i, k in enumerate(y):
        cy, cx = r.uniform(5, 10, 2)
        dy, dx = yy - cy, xx - cx
        rad, ang, ph = np.hypot(dy, dx), np.arctan2(dy, dx), r.uniform(0, 2 * np.pi)
        if k == 0:
            crack = np.cos(rad * r.uniform(1.0, 1.3) + ph)
        elif k == 1:
            th = r.uniform(0, np.pi)
            crack = np.cos(
                (dy * np.sin(th) + dx * np.cos(th)) * r.uniform(1.7, 2.2) + ph
            )
        elif k == 2:
            crack = np.cos(ang * 5 + ph)
        else:
            crack = np.zeros_like(rad)
        img[i, 0] = 0.5 + 0.35 * crack + 0.08 * r.standard_normal((16, 16))
    return torch.from_numpy(img.clip(0, 1)), torch.from_numpy(y)


@dataclass
class Settings:
    eps: float = 0.08
    replays: int = 4
    passes: int = 3  # each batch is used 4 times
    batch: int = 64
    peak_lr: float = 0.08
    smoothing: float = 0.05
    seed: int = 6


def build():
    def block(a, b, s):
        return [
            nn.Conv2d(a, b, 3, stride=s, padding=1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU(),
        ]

    return nn.Sequential(
        *block(1, 16, 1),
        *block(16, 24, 2),
        *block(24, 32, 1),
        *block(32, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )


@dataclass
class FreeTrainer:
    cfg: Settings
    losses: list = field(default_factory=list)

    def __post_init__(self):
        torch.manual_seed(self.cfg.seed)
        self.net = build()
        # drop_last: the carried perturbation has the shape of a full batch
        order = torch.Generator().manual_seed(self.cfg.seed)
        self.loader = DataLoader(
            TensorDataset(*plates(768, 1)),
            self.cfg.batch,
            shuffle=True,
            drop_last=True,
            generator=order,
        )
        self.opt = torch.optim.SGD(
            self.net.parameters(),
            lr=self.cfg.peak_lr,
            momentum=0.9,
            weight_decay=5e-4,
            nesterov=True,
        )
        total = len(self.loader) * self.cfg.replays * self.cfg.passes
        self.sched = torch.optim.lr_scheduler.OneCycleLR(
            self.opt, self.cfg.peak_lr, total_steps=total
        )
        # one perturbation per place in the batch, not per image, never reset
        self.delta = torch.zeros(self.cfg.batch, 1, 16, 16, requires_grad=True)

    def replay(self, x, y):
        out = self.net((x + self.delta).clamp(0, 1))
        loss = F.cross_entropy(out, y, label_smoothing=self.cfg.smoothing)
        self.opt.zero_grad()
        self.delta.grad = None
        loss.backward()  # weights and delta in a single pass
        with torch.no_grad():  # ascend on the image ...
            self.delta += self.cfg.eps * self.delta.grad.sign()
            self.delta.clamp_(-self.cfg.eps, self.cfg.eps)
        self.opt.step()  # ... descend on the weights
        self.sched.step()
        return loss.item()

    def fit(self):
        self.net.train()
        for p in range(self.cfg.passes):
            for x, y in self.loader:
                for _ in range(self.cfg.replays):
                    self.losses.append(self.replay(x, y))
            mean = np.mean(self.losses[-len(self.loader) * self.cfg.replays :])
            lr = self.sched.get_last_lr()[0]
            print(f"pass {p}  adversarial loss {mean:.4f}  lr {lr:.4f}")
        return self


def pgd(net, x, y, eps, steps=8, seed=0):
    """The gradient of the image alone; .grad of parameters stays as it is."""
    g = torch.Generator().manual_seed(seed)
    d = (torch.rand(x.shape, generator=g) * 2 - 1) * eps
    for _ in range(steps):
        d.requires_grad_(True)
        (grad,) = torch.autograd.grad(F.cross_entropy(net((x + d).clamp(0, 1)), y), d)
        d = (d.detach() + eps / 4 * grad.sign()).clamp(-eps, eps)
    return (x + d).clamp(0, 1)


def accuracy(net, x, y):
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3, help="passes over the data")
    cfg = Settings(passes=parser.parse_args().epochs)
    test_x, test_y = plates(400, 2)
    trainer = FreeTrainer(cfg).fit()
    trainer.net.eval()
    clean = accuracy(trainer.net, test_x, test_y)
    attacked = accuracy(trainer.net, pgd(trainer.net, test_x, test_y, cfg.eps), test_y)
    print(f"clean {clean:.3f}   under attack {attacked:.3f}   (chance 0.25)")
    with torch.no_grad():
        called = trainer.net(test_x).argmax(1)
    for k, name in enumerate(KINDS):
        print(f"    {name:13s} recall {(called[test_y == k] == k).float().mean():.3f}")


if __name__ == "__main__":
    main()
