"""Sorting almonds by picture: ghost batch norm, growing batches, precise batch-norm statistics.

* the learning rate stays where it is and the batch doubles at the milestones instead
  (Smith et al. 2018, "Don't decay the learning rate, increase the batch size")
* batch norm normalises in ghost batches of 16 whatever the batch is (Hoffer et al. 2017)
* before every evaluation the running statistics are thrown away and measured anew over many
  training pictures with the present weights (precise BN, Wu & Johnson 2021), on a *copy* of the
  model, so that the training keeps its own ones
"""
import argparse
import copy
import dataclasses
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

CLASSES = ("whole", "chipped", "split", "wormed")


@dataclasses.dataclass
class Config:
    epochs: int = 9
    first_batch: int = 16
    grow_at: tuple = (2, 4, 6)
    ghost: int = 16
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    smoothing: float = 0.05
    precise_batches: int = 12
    precise_batch_size: int = 64
    seed: int = 40


def almonds(n, gen, size=20):
    y = torch.randint(0, len(CLASSES), (n,), generator=gen)
    u = torch.rand(n, 6, 1, 1, generator=gen)
    grid = torch.linspace(-1, 1, size)
    gy, gx = torch.meshgrid(grid, grid, indexing="ij")
    angle = (u[:, 0] - 0.5) * 1.2
    x = gx * angle.cos() + gy * angle.sin() + 0.2 * (u[:, 1] - 0.5)
    z = -gx * angle.sin() + gy * angle.cos() + 0.2 * (u[:, 2] - 0.5)
    nut = ((x / 0.45) ** 2 + (z / 0.8) ** 2 < 1).float()
    label = y.view(-1, 1, 1)
    chip = ((z - 0.75) ** 2 + (x - 0.15) ** 2 < 0.16).float()
    split = (x.abs() < 0.09).float() * (z.abs() < 0.7).float()
    worm = (
        (x - 0.3 * (u[:, 3] - 0.5)) ** 2 + (z - 0.6 * (u[:, 4] - 0.5)) ** 2 < 0.035
    ).float()
    flaw = torch.where(label == 1, chip, torch.where(label == 2, split, worm))
    flaw = torch.where(label == 0, torch.zeros_like(flaw), flaw)
    picture = nut * (0.6 + 0.4 * u[:, 5]) * (1 - 0.6 * flaw)
    picture = picture + 0.28 * torch.randn(n, size, size, generator=gen)
    return TensorDataset(picture.unsqueeze(1), y)


class GhostBatchNorm2d(nn.BatchNorm2d):
    """In training every chunk has its own statistics; the running ones see all chunks in turn."""

    def __init__(self, features, ghost):
        super().__init__(features)
        self.ghost = ghost

    def forward(self, x):
        if not self.training or len(x) <= self.ghost:
            return super().forward(x)
        assert len(x) % self.ghost == 0, "a ragged chunk would have noisy statistics"
        return torch.cat(
            [super(GhostBatchNorm2d, self).forward(c) for c in x.split(self.ghost)]
        )


def network(cfg):
    def stage(a, b, stride):
        return [
            nn.Conv2d(a, b, 3, stride=stride, padding=1, bias=False),
            GhostBatchNorm2d(b, cfg.ghost),
            nn.ReLU(),
        ]

    return nn.Sequential(
        *stage(1, 12, 2),
        *stage(12, 24, 1),
        *stage(24, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(CLASSES)),
    )


@torch.no_grad()
def with_precise_statistics(model, dataset, cfg):
    twin = copy.deepcopy(model)
    norms = [m for m in twin.modules() if isinstance(m, nn.BatchNorm2d)]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # plain average over everything that is seen
        m.ghost = cfg.precise_batch_size  # and over larger groups than in training
    twin.train()
    loader = DataLoader(
        dataset,
        cfg.precise_batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(cfg.seed + 7),
    )
    for i, (x, _) in enumerate(loader):
        if i == cfg.precise_batches:
            break
        twin(x)
    assert all(int(m.num_batches_tracked) > 1 for m in norms)
    return twin.eval()


@torch.no_grad()
def evaluate(model, dataset):
    assert not model.training
    loss = hits = 0.0
    for x, y in DataLoader(dataset, 200):
        out = model(x)
        loss += F.cross_entropy(out, y, reduction="sum").item()
        hits += (out.argmax(1) == y).sum().item()
    return loss / len(dataset), hits / len(dataset)


class Trainer:
    def __init__(self, cfg, train, val):
        self.cfg, self.train_set, self.val_set = cfg, train, val
        torch.manual_seed(cfg.seed)
        self.model = network(cfg)
        decay = [p for p in self.model.parameters() if p.ndim > 1]
        plain = [p for p in self.model.parameters() if p.ndim <= 1]
        self.optimizer = torch.optim.SGD(
            [
                {"params": decay, "weight_decay": cfg.weight_decay},
                {"params": plain, "weight_decay": 0.0},
            ],
            lr=cfg.lr,
            momentum=cfg.momentum,
            nesterov=True,
        )
        self.generator = torch.Generator().manual_seed(cfg.seed + 1)
        self.best = (float("inf"), None)

    def batch_size(self, epoch):
        return self.cfg.first_batch * 2 ** sum(epoch >= m for m in self.cfg.grow_at)

    def epoch(self, epoch):
        loader = DataLoader(
            self.train_set,
            self.batch_size(epoch),
            shuffle=True,
            drop_last=True,
            generator=self.generator,
        )
        self.model.train()
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(self.model(x), y, label_smoothing=self.cfg.smoothing)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(loader), len(loader)

    def fit(self):
        curve = []
        for epoch in range(self.cfg.epochs):
            train_loss, steps = self.epoch(epoch)
            before = [b.clone() for b in self.model.buffers()]
            judge = with_precise_statistics(self.model, self.train_set, self.cfg)
            val_loss, val_acc = evaluate(judge, self.val_set)
            assert all(torch.equal(a, b) for a, b in zip(before, self.model.buffers()))
            curve.append(train_loss)
            print(
                f"epoch {epoch} batch {self.batch_size(epoch):3d} steps {steps:3d} "
                f"train {train_loss:.4f} val {val_loss:.4f} acc {val_acc:.3f}"
            )
            if val_loss < self.best[0]:
                self.best = (val_loss, judge)
        return curve


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    gen = torch.Generator().manual_seed(cfg.seed)
    pictures = almonds(2000, gen)
    train, val = Subset(pictures, range(1536)), Subset(pictures, range(1536, 2000))
    test = almonds(500, gen)

    trainer = Trainer(cfg, train, val)
    curve = trainer.fit()
    best = trainer.best[1]
    _, accuracy = evaluate(best, test)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "almonds.pt")
        torch.save(best.state_dict(), path)
        served = network(cfg).eval()
        served.load_state_dict(torch.load(path, weights_only=True))
        assert evaluate(served, test)[1] == accuracy
    print(f"test accuracy {accuracy:.3f}")
    assert curve[-1] < curve[0]
    if cfg.epochs >= 6:
        assert accuracy > 0.8


if __name__ == "__main__":
    main()
