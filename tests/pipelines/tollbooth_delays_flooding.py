"""Delay class at motorway toll booths, from lane counters and the weather.

The labels come from a manual survey and a good part of them is wrong, so an
unconstrained network drives the training loss to zero by learning the mistakes by
heart. Training is "flooded" (Ishida et al., 2020): under the flood level the sign of
the gradient turns and the loss drifts around that level.
"""

import argparse
import copy
import json
import logging
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("tollbooth")

CLASSES = ("free", "slow", "queue", "jam")


@dataclass
class Config:
    seed: int = 0
    n_train: int = 1200
    n_valid: int = 400
    n_check: int = 800
    batch_size: int = 64
    epochs: int = 30
    width: int = 160
    lr: float = 2e-3
    flood: float = 0.55
    mislabelled: float = 0.15


def survey(count, mislabelled, rng):
    """Lane flow, speeds, weather and the class the surveyor wrote down."""
    hour = rng.uniform(0, 24, count)
    weekend = rng.random(count) < 2 / 7
    rush = np.exp(-((hour - 8) ** 2) / 4) + np.exp(-((hour - 17) ** 2) / 6)
    flow = 300 + 900 * rush * np.where(weekend, 0.4, 1.0) + rng.normal(0, 80, count)
    lanes = rng.integers(2, 7, count)
    trucks = rng.beta(2, 8, count)
    tags = rng.beta(6, 3, count)
    rain = rng.gamma(0.6, 1.5, count)
    load = flow * (1 + 1.5 * trucks) * (1.4 - 0.8 * tags) / (170 * lanes)
    load = load * (1 + 0.08 * rain)
    level = np.digitize(load, [0.55, 0.95, 1.5])
    wrong = rng.random(count) < mislabelled
    noted = np.where(wrong, rng.integers(0, len(CLASSES), count), level)
    features = np.stack(
        [
            np.sin(2 * np.pi * hour / 24),
            np.cos(2 * np.pi * hour / 24),
            weekend.astype(float),
            flow,
            lanes.astype(float),
            trucks,
            tags,
            rain,
            *rng.normal(0, 1, (12, count)),
        ],
        axis=1,
    )
    return features.astype(np.float32), noted.astype(np.int64)


def build_sets(cfg):
    rng = np.random.default_rng(cfg.seed + 1000)
    parts = {
        "train": survey(cfg.n_train, cfg.mislabelled, rng),
        "valid": survey(cfg.n_valid, cfg.mislabelled, rng),
        "check": survey(cfg.n_check, 0.0, rng),
    }
    mean = parts["train"][0].mean(axis=0)
    std = parts["train"][0].std(axis=0)
    return {
        name: TensorDataset(torch.from_numpy((x - mean) / std), torch.from_numpy(y))
        for name, (x, y) in parts.items()
    }


class DelayNet(nn.Module):
    def __init__(self, inputs, width, classes):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
            for _ in range(3)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Trainer:
    def __init__(self, cfg, sets, folder):
        self.cfg, self.folder = cfg, Path(folder)
        self.model = DelayNet(sets["train"][0][0].numel(), cfg.width, len(CLASSES))
        self.compiled = torch.compile(self.model, backend="eager", dynamic=True)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.train_loader = DataLoader(
            sets["train"],
            batch_size=cfg.batch_size,
            shuffle=True,
            generator=torch.Generator().manual_seed(cfg.seed),
        )
        self.valid_loader = DataLoader(sets["valid"], batch_size=200)
        self.check_loader = DataLoader(sets["check"], batch_size=200)
        self.best_loss, self.best_state = float("inf"), None
        self.history = []

    def flooded(self, loss):
        return (loss - self.cfg.flood).abs() + self.cfg.flood

    def train_epoch(self):
        self.model.train()
        total, under, seen = 0.0, 0, 0
        for features, noted in self.train_loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.compiled(features), noted)
            self.flooded(loss).backward()
            self.optimizer.step()
            total += loss.item() * len(noted)
            under += int(loss.item() < self.cfg.flood)
            seen += len(noted)
        return total / seen, under / len(self.train_loader)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        loss, hits, seen = 0.0, 0, 0
        for features, noted in loader:
            logits = self.compiled(features)
            loss += F.cross_entropy(logits, noted, reduction="sum").item()
            hits += (logits.argmax(dim=1) == noted).sum().item()
            seen += len(noted)
        return loss / seen, hits / seen

    def fit(self):
        for epoch in range(1, self.cfg.epochs + 1):
            train_loss, under = self.train_epoch()
            valid_loss, valid_hits = self.evaluate(self.valid_loader)
            if valid_loss < self.best_loss:
                self.best_loss = valid_loss
                self.best_state = copy.deepcopy(self.model.state_dict())
            self.history.append(
                {"epoch": epoch, "train": train_loss, "valid": valid_loss}
            )
            log.info(
                "epoch %2d  train %.4f  turned %3.0f%%  valid %.4f  hits %.3f",
                epoch,
                train_loss,
                100 * under,
                valid_loss,
                valid_hits,
            )

    def finish(self):
        self.model.load_state_dict(self.best_state)
        loss, hits = self.evaluate(self.check_loader)
        log.info("carefully labelled set: loss %.4f  hits %.3f", loss, hits)
        torch.save(self.best_state, self.folder / "delay_net.pt")
        report = {"config": asdict(self.cfg), "history": self.history, "hits": hits}
        (self.folder / "report.json").write_text(json.dumps(report, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--flood", type=float, default=Config.flood)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    cfg = Config(seed=args.seed, epochs=args.epochs, flood=args.flood)
    torch.manual_seed(cfg.seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(cfg, build_sets(cfg), folder)
        trainer.fit()
        trainer.finish()


if __name__ == "__main__":
    main()
