"""Taxi trip durations: learning-rate range test, roll-back, one-cycle, export.

First the Trainer runs a range test that raises the rate until the loss blows
up, which is wanted. It works on the live model and then puts weights, batch
norm statistics, optimizer and random state back as they were. The top rate of
OneCycleLR is a third of the one that blew up; its momentum cycles against the rate.
Matrix products run under bfloat16 autocast on the CPU, without a GradScaler,
which bfloat16 does not need. The model is exported with torch.export.
"""
import argparse
import copy
import logging
import math
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("taxis")


@dataclass
class Config:
    epochs: int = 6
    batch_size: int = 128
    zones: int = 24
    zone_dim: int = 6
    hidden: int = 64
    weight_decay: float = 1e-4
    momentum_low: float = 0.85
    momentum_high: float = 0.95
    range_low: float = 1e-3
    range_high: float = 30.0
    range_steps: int = 100
    clip: float = 5.0
    seed: int = 71


def make_trips(cfg, n, rng):
    """Minutes from a distance between zones, the hour, the rain, and noise; target is standardised log."""
    where = torch.rand(cfg.zones, 2, generator=torch.Generator().manual_seed(7))
    a, b = torch.randint(cfg.zones, (2, n), generator=rng)
    hour = torch.rand(n, generator=rng) * 24
    rain = (torch.rand(n, generator=rng) < 0.2).float()
    km = 12 * (where[a] - where[b]).norm(dim=1) + 1
    rush = (
        1
        + 0.7 * torch.exp(-(((hour - 8.5) / 1.5) ** 2))
        + 0.5 * torch.exp(-(((hour - 17.5) / 2) ** 2))
    )
    minutes = 2 + 2.2 * km * rush * (1 + 0.25 * rain) * torch.exp(
        0.08 * torch.randn(n, generator=rng)
    )
    angle = hour / 24 * 2 * math.pi
    dense = torch.stack(
        [angle.sin(), angle.cos(), (2 * angle).sin(), (2 * angle).cos(), rain], dim=1
    )
    return torch.stack([a, b], dim=1), dense, minutes.log()


class TripNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.zone = nn.Embedding(cfg.zones, cfg.zone_dim)
        self.body = nn.Sequential(
            nn.Linear(2 * cfg.zone_dim + 5, cfg.hidden, bias=False),
            nn.BatchNorm1d(cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden, bias=False),
            nn.BatchNorm1d(cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, 1),
        )

    def forward(self, zones, dense):
        return self.body(
            torch.cat([self.zone(zones).flatten(1), dense], dim=1)
        ).squeeze(1)


class Trainer:
    def __init__(self, cfg, train, valid):
        self.cfg = cfg
        self.loader = DataLoader(
            train,
            batch_size=cfg.batch_size,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(cfg.seed + 1),
        )
        self.valid = DataLoader(valid, batch_size=512)
        self.model = TripNet(cfg)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=cfg.range_low,
            momentum=cfg.momentum_high,
            nesterov=True,
            weight_decay=cfg.weight_decay,
        )

    def train_step(self, zones, dense, target):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = self.model(zones, dense)
        loss = F.mse_loss(output.float(), target)  # the loss itself stays in float32
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
        self.optimizer.step()
        return loss.item()

    # ---- range test ------------------------------------------------------
    def snapshot(self):
        return copy.deepcopy(
            (
                self.model.state_dict(),
                self.optimizer.state_dict(),
                self.loader.generator.get_state(),
                torch.get_rng_state(),
            )
        )

    def restore(self, saved):
        model, optimizer, loader_rng, global_rng = copy.deepcopy(saved)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        self.loader.generator.set_state(loader_rng)
        torch.set_rng_state(global_rng)

    def lr_range_test(self):
        cfg, saved = self.cfg, self.snapshot()
        self.model.train()
        lrs, losses, smooth, best = [], [], 0.0, math.inf
        edge = cfg.range_high
        batches = iter(self.loader)
        for i in range(cfg.range_steps):
            lr = cfg.range_low * (cfg.range_high / cfg.range_low) ** (
                i / (cfg.range_steps - 1)
            )
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            try:
                batch = next(batches)
            except StopIteration:
                batches = iter(self.loader)
                batch = next(batches)
            smooth = 0.8 * smooth + 0.2 * self.train_step(*batch)
            value = smooth / (1 - 0.8 ** (i + 1))
            if not math.isfinite(value) or (i > 10 and value > 2 * best):
                edge = lr
                log.info(
                    "range test: the loss left its range at lr %.3g, as wanted", lr
                )
                break
            best = min(best, value)
            lrs.append(lr)
            losses.append(value)
        self.restore(saved)
        return edge / 3, lrs, losses  # well below the edge of stability

    # ---- training ----------------------------------------------------------
    def fit(self):
        cfg = self.cfg
        before = {k: v.clone() for k, v in self.model.state_dict().items()}
        max_lr, lrs, losses = self.lr_range_test()
        assert all(
            torch.equal(before[k], v) for k, v in self.model.state_dict().items()
        ), "not rolled back"
        assert not self.optimizer.state, "momentum of the range test must not survive"
        log.info(
            "range test: %d rates, lowest loss %.3f, max_lr %.3g",
            len(lrs),
            min(losses),
            max_lr,
        )

        total = cfg.epochs * len(self.loader)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer,
            max_lr=max_lr,
            total_steps=total,
            pct_start=0.3,
            cycle_momentum=True,
            base_momentum=cfg.momentum_low,
            max_momentum=cfg.momentum_high,
        )
        history = []
        for epoch in range(cfg.epochs):
            self.model.train()
            running = []
            for batch in self.loader:
                running.append(self.train_step(*batch))
                schedule.step()
            group = self.optimizer.param_groups[0]
            history.append(self.validate())
            log.info(
                "epoch %d train %.4f valid %.4f lr %.4f momentum %.3f",
                epoch,
                sum(running) / len(running),
                history[-1],
                group["lr"],
                group["momentum"],
            )
        return history

    @torch.inference_mode()
    def validate(self):
        self.model.eval()  # float32, as it will be served
        error = sum(
            F.mse_loss(self.model(z, d), t, reduction="sum").item()
            for z, d, t in self.valid
        )
        return error / len(self.valid.dataset)


def export(model, zones, dense, path):
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(
        model.eval(), (zones[:8], dense[:8]), dynamic_shapes=({0: batch}, {0: batch})
    )
    torch.export.save(program, path)
    served = torch.export.load(path).module()
    with torch.no_grad():
        for n in (1, 33):  # sizes other than the traced one
            torch.testing.assert_close(
                served(zones[:n], dense[:n]),
                model(zones[:n], dense[:n]),
                rtol=1e-4,
                atol=1e-5,
            )


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    torch.manual_seed(cfg.seed)
    rng = torch.Generator().manual_seed(cfg.seed)
    train, valid = make_trips(cfg, 8000, rng), make_trips(cfg, 2000, rng)
    mean, std = train[2].mean(), train[2].std()  # of the training trips only
    sets = [TensorDataset(z, d, (t - mean) / std) for z, d, t in (train, valid)]
    trainer = Trainer(cfg, *sets)
    start = trainer.validate()
    history = trainer.fit()
    log.info("valid mse %.3f -> %.4f", start, history[-1])
    if cfg.epochs >= Config.epochs:
        assert history[-1] < 0.25 and history[-1] < start
    with tempfile.TemporaryDirectory() as folder:
        export(trainer.model, valid[0], valid[1], os.path.join(folder, "trips.pt2"))
    log.info("export agrees with the model")


if __name__ == "__main__":
    main()
