"""Claim frequency for motor policies, for the pricing team.

* Poisson loss with the exposure as an offset (a policy of two months is not a year)
* the premium has to rise with the malus class and the power of the car: torch's parametrize
  holds the weights on those paths positive (softplus), the others are free
* trainer with callbacks: plateau schedule, early stopping, best weights put back
* export: the parametrizations are folded away, the plain state dict is checked for parity
"""
import argparse
import copy
import dataclasses
import json
import math
import os
import tempfile

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, TensorDataset

N_FREE, N_MONO = 8, 2


@dataclasses.dataclass
class Config:
    epochs: int = 25
    batch_size: int = 256
    lr: float = 4e-3
    weight_decay: float = 1e-4
    plateau_patience: int = 2
    stop_patience: int = 6
    width: int = 24
    seed: int = 31


class Positive(nn.Module):
    def forward(self, raw):
        return nn.functional.softplus(raw)

    def right_inverse(self, weight):
        return torch.log(torch.expm1(weight.clamp_min(1e-3)))


class Tariff(nn.Module):
    """log frequency = free(x) + monotone(m, free context); tanh keeps the order."""

    def __init__(self, width, base_rate):
        super().__init__()
        self.free = nn.Sequential(
            nn.Linear(N_FREE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.free_out = nn.Linear(width, 1)
        self.mono_in = nn.Linear(N_MONO, width)
        self.mono_ctx = nn.Linear(width, width, bias=False)
        self.mono_out = nn.Linear(width, 1, bias=False)
        with torch.no_grad():
            self.free_out.weight.mul_(0.1)
            self.free_out.bias.fill_(math.log(base_rate))

    def constrain(self):
        for layer in (self.mono_in, self.mono_out):
            with torch.no_grad():
                layer.weight.abs_()
            parametrize.register_parametrization(layer, "weight", Positive())
        return self

    def forward(self, free, mono):
        context = self.free(free)
        rising = torch.tanh(self.mono_in(mono) + self.mono_ctx(context))
        return (self.free_out(context) + self.mono_out(rising)).squeeze(-1)


def portfolio(n, gen):
    free = torch.randn(n, N_FREE, generator=gen)
    mono = torch.rand(n, N_MONO, generator=gen) * 2 - 1
    exposure = 0.1 + 0.9 * torch.rand(n, generator=gen)
    log_rate = (
        -1.0
        + 0.5 * free[:, 0]
        - 0.35 * free[:, 1]
        + 0.3 * free[:, 2] * free[:, 3]
        + 0.8 * mono[:, 0]
        + 0.5 * torch.tanh(3 * mono[:, 1])
    )
    rate = exposure * log_rate.exp()
    return TensorDataset(free, mono, exposure, torch.poisson(rate, generator=gen))


def poisson_loss(log_rate, exposure, claims):
    return nn.functional.poisson_nll_loss(
        log_rate + exposure.log(), claims, log_input=True
    )


@torch.no_grad()
def deviance(model, data, flat_rate=None):
    """Of the model, or of one rate for everybody as the benchmark."""
    model.eval()
    free, mono, exposure, claims = data.tensors
    mu = exposure * (model(free, mono).exp() if flat_rate is None else flat_rate)
    ratio = torch.where(claims > 0, claims * (claims.clamp_min(1e-9) / mu).log(), 0.0)
    return (2 * (ratio - claims + mu)).mean().item()


class Plateau(torch.optim.lr_scheduler.ReduceLROnPlateau):
    def on_epoch_end(self, trainer, logs):
        self.step(logs["val"])


class KeepBest:
    def __init__(self, cfg):
        self.cfg, self.best, self.bad, self.state = cfg, math.inf, 0, None

    def on_epoch_end(self, trainer, logs):
        if logs["val"] < self.best - 1e-4:
            self.best, self.bad = logs["val"], 0
            self.state = copy.deepcopy(trainer.model.state_dict())
        else:
            self.bad += 1
        trainer.stop = self.bad >= self.cfg.stop_patience


class Trainer:
    def __init__(self, model, cfg, train, val):
        self.model, self.cfg, self.val, self.stop = model, cfg, val, False
        self.loader = DataLoader(
            train,
            cfg.batch_size,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(cfg.seed),
        )
        # the raw softplus weights are not decayed: zero is not neutral for them
        held = [p for n, p in model.named_parameters() if "parametrizations" in n]
        loose = [p for n, p in model.named_parameters() if "parametrizations" not in n]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": loose, "weight_decay": cfg.weight_decay},
                {"params": held, "weight_decay": 0.0},
            ],
            lr=cfg.lr,
        )
        self.callbacks = [
            Plateau(self.optimizer, "min", 0.5, cfg.plateau_patience),
            KeepBest(cfg),
        ]

    def fit(self):
        history = []
        for epoch in range(self.cfg.epochs):
            self.model.train()
            total = 0.0
            for free, mono, exposure, claims in self.loader:
                # the softplus of each held weight is worked out once a step
                with parametrize.cached():
                    loss = poisson_loss(self.model(free, mono), exposure, claims)
                    self.optimizer.zero_grad()
                    loss.backward()
                self.optimizer.step()
                total += loss.item()
            logs = {
                "epoch": epoch,
                "lr": self.optimizer.param_groups[0]["lr"],
                "train": total / len(self.loader),
                "val": deviance(self.model, self.val),
            }
            history.append(logs)
            print(json.dumps({k: round(v, 5) for k, v in logs.items()}))
            for callback in self.callbacks:
                callback.on_epoch_end(self, logs)
            if self.stop:
                break
        self.model.load_state_dict(self.callbacks[-1].state)
        return history


@torch.no_grad()
def check_monotone(model, data):
    free, mono = data.tensors[0][:200], data.tensors[1][:200]
    lower = model(free, mono)
    for column in range(N_MONO):
        raised = mono.clone()
        raised[:, column] += 0.25
        assert (
            model(free, raised) >= lower - 1e-6
        ).all(), f"column {column} may lower the price"


def export(model, cfg, folder):
    for layer in (model.mono_in, model.mono_out):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    path = os.path.join(folder, "tariff.pt")
    torch.save({"config": dataclasses.asdict(cfg), "weights": model.state_dict()}, path)
    blob = torch.load(path, weights_only=True)
    plain = Tariff(blob["config"]["width"], base_rate=1.0)
    plain.load_state_dict(blob["weights"])
    return plain.eval()


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    torch.manual_seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed + 1)
    train, val, test = (portfolio(n, gen) for n in (8000, 3000, 3000))
    base = (train.tensors[3].sum() / train.tensors[2].sum()).item()
    model = Tariff(cfg.width, base).constrain()
    history = Trainer(model, cfg, train, val).fit()
    flat, final = deviance(model, test, flat_rate=base), deviance(model, test)
    print(f"test deviance: flat rate {flat:.4f}, network {final:.4f}")
    check_monotone(model, test)

    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        expected = model(*test.tensors[:2])
        plain = export(model, cfg, folder)
        assert torch.allclose(plain(*test.tensors[:2]), expected, atol=1e-5)
    assert history[-1]["train"] < history[0]["train"]
    if cfg.epochs >= 8:
        assert final < 0.92 * flat
        predicted = (expected.exp() * test.tensors[2]).sum() / test.tensors[3].sum()
        assert 0.85 < predicted < 1.15, "the tariff must balance over the book"


if __name__ == "__main__":
    main()
