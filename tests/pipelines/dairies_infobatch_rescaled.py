"""Milk quality from infrared spectra with unbiased dynamic data pruning (InfoBatch).

Every epoch, a random half of the samples whose last loss was below the mean is left out, and the loss of the
kept ones of that group is doubled, so the expected gradient is unchanged; the last epochs use everything with
weight one.  The number of steps per epoch is therefore not constant: the learning rate follows the progress of
the run, not a step count.  Losses, weights, random state and the position in the run are in the checkpoint, and
the second half of the run is done by a new trainer that resumes from it.
"""
import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    samples: int = 2400
    channels: int = 40
    grades: int = 5
    width: int = 64
    epochs: int = 16
    batch: int = 48
    peak_lr: float = 0.06
    warm_fraction: float = 0.12
    momentum: float = 0.9
    weight_decay: float = 5e-4
    prune_ratio: float = 0.5
    full_fraction: float = 0.85  # no pruning after this share of the epochs
    seed: int = 33


def spectra(cfg, n, seed):
    rng = np.random.default_rng(seed)
    axis = np.linspace(0, 1, cfg.channels)
    grade = rng.integers(0, cfg.grades, n)
    fat, protein = 0.3 + 0.12 * grade + 0.05 * rng.standard_normal(
        n
    ), 0.5 + 0.1 * rng.standard_normal(n)
    water = 1 - 0.15 * (grade % 2) + 0.05 * rng.standard_normal(n)
    x = fat[:, None] * np.exp(-(((axis - 0.25) / 0.05) ** 2)) + protein[
        :, None
    ] * np.exp(-(((axis - 0.5) / 0.08) ** 2))
    x = (
        x
        + water[:, None] * np.exp(-(((axis - 0.8) / 0.1) ** 2))
        + rng.normal(0, 0.1, (n, 1)) * axis
    )
    return (x + 0.04 * rng.standard_normal(x.shape)).astype(np.float32), grade


class Milk(Dataset):
    """Returns the index as well: the losses have to find their way back to the samples."""

    def __init__(self, x, y, mean, std):
        self.x, self.y = torch.from_numpy((x - mean) / std), torch.from_numpy(y)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i], i


class PruningSampler:
    def __init__(self, n, ratio, full_from, seed):
        self.score = torch.full(
            (n,), float("inf")
        )  # nothing is known yet: epoch 0 keeps all
        self.weight = torch.ones(n)
        self.ratio, self.full_from, self.epoch = ratio, full_from, 0
        self.gen = torch.Generator().manual_seed(seed)
        self.order = []

    def start_epoch(self, epoch):
        self.epoch = epoch
        n = len(self.score)
        self.weight = torch.ones(n)
        keep = torch.ones(n, dtype=torch.bool)
        if epoch < self.full_from and torch.isfinite(self.score).all():
            easy = torch.nonzero(self.score < self.score.mean()).squeeze(1)
            stays = easy[
                torch.randperm(len(easy), generator=self.gen)[
                    : len(easy) - int(self.ratio * len(easy))
                ]
            ]
            keep[easy] = False
            keep[stays] = True
            self.weight[stays] = len(easy) / len(stays)
            assert (
                abs(self.weight[keep].sum().item() - n) < 1e-2
            ), "the weights of the kept ones add up to the data set"
        kept = torch.nonzero(keep).squeeze(1)
        self.order = kept[torch.randperm(len(kept), generator=self.gen)].tolist()

    def record(self, index, losses):
        self.score[index] = losses

    def __iter__(self):
        return iter(self.order)

    def __len__(self):
        return len(self.order)

    def state_dict(self):
        return {"score": self.score, "rng": self.gen.get_state()}

    def load_state_dict(self, state):
        self.score = state["score"].clone()
        self.gen.set_state(state["rng"])


class Trainer:
    def __init__(self, cfg, train, valid):
        torch.manual_seed(cfg.seed)
        self.cfg, self.valid = cfg, valid
        self.model = nn.Sequential(
            nn.Linear(cfg.channels, cfg.width),
            nn.LayerNorm(cfg.width),
            nn.ReLU(),
            nn.Linear(cfg.width, cfg.width),
            nn.LayerNorm(cfg.width),
            nn.ReLU(),
            nn.Linear(cfg.width, cfg.grades),
        )
        decay = [p for p in self.model.parameters() if p.ndim > 1]
        flat = [p for p in self.model.parameters() if p.ndim <= 1]
        self.opt = torch.optim.SGD(
            [{"params": decay, "weight_decay": cfg.weight_decay}, {"params": flat}],
            lr=0.0,
            momentum=cfg.momentum,
            nesterov=True,
        )
        self.sampler = PruningSampler(
            len(train), cfg.prune_ratio, int(cfg.full_fraction * cfg.epochs), cfg.seed
        )
        self.loader = DataLoader(train, cfg.batch, sampler=self.sampler)
        self.epoch, self.log = 0, []

    def set_lr(self, progress):
        """Triangle over the share of the run that is done, whatever the number of steps turns out to be."""
        warm = self.cfg.warm_fraction
        factor = progress / warm if progress < warm else (1 - progress) / (1 - warm)
        for g in self.opt.param_groups:
            g["lr"] = self.cfg.peak_lr * max(factor, 1e-3)

    def fit(self, until):
        while self.epoch < until:
            self.sampler.start_epoch(self.epoch)
            self.model.train()
            steps, total = len(self.loader), 0.0
            for i, (x, y, index) in enumerate(self.loader):
                self.set_lr((self.epoch + i / steps) / self.cfg.epochs)
                each = F.cross_entropy(
                    self.model(x), y, reduction="none", label_smoothing=0.05
                )
                self.sampler.record(
                    index, each.detach()
                )  # unweighted: it decides about the next epoch
                loss = (each * self.sampler.weight[index]).mean()
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                total += each.detach().sum().item()
            row = {
                "epoch": self.epoch,
                "steps": steps,
                "kept": len(self.sampler),
                "loss": total / len(self.sampler),
                "accuracy": self.accuracy(),
            }
            self.log.append(row)
            self.epoch += 1
            print(json.dumps({k: round(v, 4) for k, v in row.items()}))

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        return (
            (self.model(self.valid.x).argmax(1) == self.valid.y).float().mean().item()
        )

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "sampler": self.sampler.state_dict(),
                "epoch": self.epoch,
                "log": self.log,
                "config": asdict(self.cfg),
            },
            path,
        )

    def load(self, path):
        state = torch.load(path, weights_only=True)
        assert state["config"] == asdict(
            self.cfg
        ), "a run resumes under its own configuration only"
        self.model.load_state_dict(state["model"])
        self.opt.load_state_dict(state["opt"])
        self.sampler.load_state_dict(state["sampler"])
        self.epoch, self.log = state["epoch"], state["log"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    x, y = spectra(cfg, cfg.samples, cfg.seed)
    mean, std = x.mean(0), x.std(0)
    train, valid = Milk(x, y, mean, std), Milk(
        *spectra(cfg, 600, cfg.seed + 1), mean, std
    )

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "half.pt"
        first = Trainer(cfg, train, valid)
        untrained = first.accuracy()
        first.fit(cfg.epochs // 2)
        first.save(path)
        second = Trainer(cfg, train, valid)
        second.load(path)
        assert second.accuracy() == first.accuracy()
        second.fit(cfg.epochs)

    log = second.log
    saved = 1 - sum(r["kept"] for r in log) / (len(log) * cfg.samples)
    print(
        f"accuracy {untrained:.3f} -> {log[-1]['accuracy']:.3f}, forward and backward passes saved {saved:.1%}"
    )
    assert [r["epoch"] for r in log] == list(range(cfg.epochs))
    if cfg.epochs >= 12:
        assert (
            log[-1]["kept"] == cfg.samples and min(r["kept"] for r in log) < cfg.samples
        )
        assert (
            log[-1]["loss"] < 0.7 * log[0]["loss"]
            and log[-1]["accuracy"] > untrained + 0.4
        )


if __name__ == "__main__":
    main()
