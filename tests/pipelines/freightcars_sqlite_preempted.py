"""Axle-box alarms on freight cars: trained from a SQLite file on preemptible machines.

* IterableDataset over a table; every worker opens its own read-only connection (a connection
  must not cross a fork) and reads its own share of the shuffled blocks
* SIGTERM only sets a flag; the loop finishes its step, writes all that matters and leaves
* the second life rebuilds all objects, reads the file and skips the consumed batches

The drill below sends the signal to itself and demands the very weights of a run left alone.
"""
import argparse
import dataclasses
import itertools
import os
import random
import signal
import sqlite3
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FEATURES = 16


@dataclasses.dataclass
class Config:
    database: str
    checkpoint: str
    steps: int = 120
    batch_size: int = 64
    block: int = 32
    workers: int = 2
    rows: int = 3072
    lr: float = 3e-3
    seed: int = 17


def build_database(path, rows, seed):
    rng = np.random.default_rng(seed)
    axes = rng.normal(size=(3, FEATURES)).astype(np.float32)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    score = x @ axes[0] + np.abs(x @ axes[1]) - 0.7 * np.abs(x @ axes[2])
    y = (score > np.median(score)).astype(int)
    with sqlite3.connect(path) as db:
        db.execute(
            "create table readings (id integer primary key, split text, x blob, y integer)"
        )
        db.executemany(
            "insert into readings values (?, ?, ?, ?)",
            (
                (i, "val" if i >= rows * 5 // 6 else "train", x[i].tobytes(), int(y[i]))
                for i in range(rows)
            ),
        )
    db.close()


class Readings(IterableDataset):
    """Blocks of consecutive ids, shuffled by epoch, dealt out to the workers in turn."""

    def __init__(self, path, split, block, seed, shuffle):
        self.path, self.split, self.block = path, split, block
        self.seed, self.shuffle, self.epoch = seed, shuffle, 0

    def __iter__(self):
        info = get_worker_info()
        me, all_of_us = (0, 1) if info is None else (info.id, info.num_workers)
        db = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        try:
            low, high = db.execute(
                "select min(id), max(id) from readings where split = ?", (self.split,)
            ).fetchone()
            starts = list(range(low, high + 1, self.block))
            rng = random.Random(self.seed * 1000003 + self.epoch)
            if self.shuffle:
                rng.shuffle(starts)
            for start in starts[me::all_of_us]:
                rows = db.execute(
                    "select x, y from readings where split = ? and id >= ? and id < ? order by id",
                    (self.split, start, start + self.block),
                ).fetchall()
                if self.shuffle:
                    random.Random(rng.random() + start).shuffle(rows)
                for blob, y in rows:
                    yield torch.frombuffer(bytearray(blob), dtype=torch.float32), y
        finally:
            db.close()


def worker_init(_):
    # the parent's handler is none of the workers' business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def loader(cfg, dataset, workers):
    return DataLoader(
        dataset,
        cfg.batch_size,
        num_workers=workers,
        worker_init_fn=worker_init,
        generator=torch.Generator().manual_seed(cfg.seed),
    )


class Run:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.model = nn.Sequential(
            nn.Linear(FEATURES, 96),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(96, 48),
            nn.ReLU(),
            nn.Linear(48, 1),
        )
        self.optimizer = torch.optim.NAdam(self.model.parameters(), lr=cfg.lr)
        self.schedule = torch.optim.lr_scheduler.PolynomialLR(
            self.optimizer, cfg.steps, power=1.0
        )
        self.train_set = Readings(
            cfg.database, "train", cfg.block, cfg.seed, shuffle=True
        )
        self.val_set = Readings(cfg.database, "val", cfg.block, cfg.seed, shuffle=False)
        self.step = self.epoch = self.consumed = 0
        self.losses, self.told_to_stop = [], False
        if os.path.exists(cfg.checkpoint):
            self.load()

    def save(self):
        blob = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rng": torch.get_rng_state(),
            "step": self.step,
            "epoch": self.epoch,
            "consumed": self.consumed,
            "losses": self.losses,
        }
        torch.save(blob, self.cfg.checkpoint + ".part")
        os.replace(
            self.cfg.checkpoint + ".part", self.cfg.checkpoint
        )  # never half-written

    def load(self):
        blob = torch.load(self.cfg.checkpoint, weights_only=True)
        for part in ("model", "optimizer", "schedule"):
            getattr(self, part).load_state_dict(blob[part])
        self.step, self.epoch, self.consumed = (
            blob["step"],
            blob["epoch"],
            blob["consumed"],
        )
        self.losses = blob["losses"]
        torch.set_rng_state(blob["rng"])
        print(
            f"resumed at step {self.step} (epoch {self.epoch}, batch {self.consumed})"
        )

    def train(self, preempt_at=None):
        """True if the run is complete, False if it was asked to leave."""
        previous = signal.signal(
            signal.SIGTERM, lambda *_: setattr(self, "told_to_stop", True)
        )
        try:
            while self.step < self.cfg.steps:
                self.train_set.epoch = self.epoch
                self.model.train()
                batches = loader(self.cfg, self.train_set, self.cfg.workers)
                for x, y in itertools.islice(batches, self.consumed, None):
                    loss = nn.functional.binary_cross_entropy_with_logits(
                        self.model(x).squeeze(1), y.float()
                    )
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                    self.schedule.step()
                    self.losses.append(loss.item())
                    self.step, self.consumed = self.step + 1, self.consumed + 1
                    if self.step == preempt_at:
                        os.kill(os.getpid(), signal.SIGTERM)  # the drill
                    if self.told_to_stop:
                        self.save()
                        print(f"SIGTERM: saved at step {self.step}")
                        return False
                    if self.step == self.cfg.steps:
                        break
                else:
                    self.epoch, self.consumed = self.epoch + 1, 0
            return True
        finally:
            signal.signal(signal.SIGTERM, previous)

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        hits = seen = 0
        for x, y in loader(self.cfg, self.val_set, 0):
            hits += ((self.model(x).squeeze(1) > 0) == y.bool()).sum().item()
            seen += len(y)
        assert seen == self.cfg.rows - self.cfg.rows * 5 // 6
        return hits / seen


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cfg = Config(
            os.path.join(folder, "axles.db"), os.path.join(folder, "run.pt"), args.steps
        )
        build_database(cfg.database, cfg.rows, cfg.seed)

        first_life = Run(cfg)
        untrained = first_life.accuracy()
        assert not first_life.train(preempt_at=args.steps * 2 // 5 + 1)
        del first_life
        second_life = Run(cfg)
        assert second_life.train()

        alone = Run(
            dataclasses.replace(cfg, checkpoint=os.path.join(folder, "alone.pt"))
        )
        assert alone.train()

        accuracy, losses = second_life.accuracy(), second_life.losses
        k = max(1, len(losses) // 6)
        print(
            f"loss {sum(losses[:k]) / k:.3f} -> {sum(losses[-k:]) / k:.3f}; "
            f"accuracy {untrained:.3f} -> {accuracy:.3f}"
        )
        assert losses == alone.losses and len(losses) == args.steps
        for a, b in zip(second_life.model.parameters(), alone.model.parameters()):
            assert torch.equal(a, b), "the preempted run left the track"
        assert sum(losses[-k:]) < sum(losses[:k])
        if args.steps >= 100:
            assert accuracy > 0.8


if __name__ == "__main__":
    main()
