"""Erasure requests: a survey model forgets some respondents by gradient ascent.

Part 1 trains a wide net on all respondents, to the point of knowing their
(partly noisy) answers by heart. Part 2 serves a batch of erasure requests: the
loss on the respondents to be erased is *raised* on purpose, while a plain loss
on the others keeps the model useful,
    loss = CE(retained) - weight * mean(min(CE(erased), level)).
Each erased person has a level of their own, taken from the losses of strangers
(people never trained on), since a loss far above that of strangers would give
them away as well. It ends when an attack cannot tell both apart. The outcome is compared with a model
trained from scratch without them, the gold standard, and with a
membership-inference attack. The report is what the auditors get.
"""
import argparse
import json
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    respondents: int = 700
    erased: int = 70
    questions: int = 20
    answers: int = 3
    label_noise: float = 0.15
    width: int = 256
    batch: int = 70
    epochs: int = 40
    lr: float = 2e-3
    erase_lr: float = 5e-4
    erase_weight: float = 1.0
    erase_cap: float = 3.0
    erase_auc: float = 0.56
    erase_max_steps: int = 200
    seed: int = 121


def make_survey(cfg, n, rng):
    fixed = torch.Generator().manual_seed(9)
    w = torch.randn(cfg.questions, cfg.answers, generator=fixed)
    x = torch.randn(n, cfg.questions, generator=rng)
    y = (x @ w).argmax(1)
    flip = torch.rand(n, generator=rng) < cfg.label_noise
    return x, torch.where(flip, torch.randint(cfg.answers, (n,), generator=rng), y)


def build(cfg, seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(cfg.questions, cfg.width),
        nn.ReLU(),
        nn.Linear(cfg.width, cfg.width),
        nn.ReLU(),
        nn.Linear(cfg.width, cfg.answers),
    )


def batches(n, size, rng):
    return torch.randperm(n, generator=rng).split(size)


def train(cfg, data, seed, name):
    """Ordinary training; no weight decay and many epochs, for a model that remembers."""
    model, rng = build(cfg, seed), torch.Generator().manual_seed(seed + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=max(cfg.epochs, 1)
    )
    history = []
    for epoch in range(cfg.epochs):
        total = 0.0
        for rows in batches(len(data[0]), cfg.batch, rng):
            loss = F.cross_entropy(model(data[0][rows]), data[1][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        schedule.step()
        history.append(total / len(data[0]))
        if epoch % 10 == 0 or epoch == cfg.epochs - 1:
            print(f"{name}: epoch {epoch:3d} loss {history[-1]:.4f}")
    return model, history


@torch.no_grad()
def losses_of(model, data):
    model.eval()
    values = F.cross_entropy(model(data[0]), data[1], reduction="none")
    model.train()
    return values


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    value = (model(data[0]).argmax(1) == data[1]).float().mean().item()
    model.train()
    return value


def membership_auc(members, strangers):
    """Chance that a member has a lower loss than a stranger: 0.5 says nothing can be told."""
    lower = (members[:, None] < strangers[None]).float()
    ties = (members[:, None] == strangers[None]).float()
    return (lower + 0.5 * ties).mean().item()


class Eraser:
    """Serves one batch of requests, on a model in place."""

    def __init__(self, cfg, model, retained, erased, strangers):
        self.cfg, self.model = cfg, model
        self.retained, self.erased, self.strangers = retained, erased, strangers
        # A new optimizer: moments of the old training point towards remembering.
        self.optimizer = torch.optim.Adam(model.parameters(), lr=cfg.erase_lr)
        self.rng = torch.Generator().manual_seed(cfg.seed + 50)
        self.log = []

    def levels(self):
        """Quantiles of the strangers' losses; who is hard already gets the high ones."""
        now = losses_of(self.model, self.erased)
        spread = (torch.arange(len(now)) + 0.5) / len(now)
        wanted = torch.quantile(losses_of(self.model, self.strangers), spread).clamp(
            max=self.cfg.erase_cap
        )
        levels = torch.empty_like(now)
        levels[now.argsort()] = wanted  # wanted is in rising order
        return levels

    def run(self):
        levels, steps = self.levels(), 0  # fixed before the first step
        while True:
            for rows in batches(len(self.retained[0]), self.cfg.batch, self.rng):
                told = membership_auc(
                    losses_of(self.model, self.erased),
                    losses_of(self.model, self.strangers),
                )
                self.log.append(told)
                if told <= self.cfg.erase_auc or steps >= self.cfg.erase_max_steps:
                    return steps
                keep = F.cross_entropy(
                    self.model(self.retained[0][rows]), self.retained[1][rows]
                )
                each = F.cross_entropy(
                    self.model(self.erased[0]), self.erased[1], reduction="none"
                )
                erase = torch.minimum(
                    each, levels
                ).mean()  # no pull on who is at the level
                loss = (
                    keep - self.cfg.erase_weight * erase
                )  # ascent on the erased, by intent
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                if steps % 5 == 0:
                    print(
                        f"erasing: step {steps:3d} kept {keep.item():.4f} erased {each.mean().item():.4f} "
                        f"(level {levels.mean().item():.4f}) attack {told:.3f}"
                    )
                steps += 1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    rng = torch.Generator().manual_seed(cfg.seed)
    everyone = make_survey(cfg, cfg.respondents, rng)
    strangers = make_survey(cfg, 400, rng)  # sets the level to reach
    test = make_survey(cfg, 1500, rng)  # for the report only
    chosen = torch.randperm(cfg.respondents, generator=rng)
    erased = tuple(t[chosen[: cfg.erased]] for t in everyone)
    retained = tuple(t[chosen[cfg.erased :]] for t in everyone)

    model, history = train(cfg, everyone, cfg.seed, "all respondents")
    gold, _ = train(cfg, retained, cfg.seed + 7, "without them")

    def report(m):
        return {
            "test_accuracy": accuracy(m, test),
            "retained_accuracy": accuracy(m, retained),
            "erased_accuracy": accuracy(m, erased),
            "membership_auc": membership_auc(losses_of(m, erased), losses_of(m, test)),
        }

    before = report(model)
    eraser = Eraser(cfg, model, retained, erased, strangers)
    steps = eraser.run()
    after = report(model)
    result = {
        "erase_steps": steps,
        "before": before,
        "after": after,
        "gold": report(gold),
    }
    print(json.dumps(result, indent=1))
    if cfg.epochs >= Config.epochs:
        assert (
            history[-1] < 0.05 * history[0]
        ), "the model was to know its respondents by heart"
        assert 0 < steps < cfg.erase_max_steps, "erasure must end by its own rule"
        assert eraser.log[-1] < eraser.log[0]
        assert abs(after["membership_auc"] - 0.5) < abs(before["membership_auc"] - 0.5)
        assert (
            after["retained_accuracy"] > 0.9
            and after["test_accuracy"] > before["test_accuracy"] - 0.05
        )


if __name__ == "__main__":
    main()
