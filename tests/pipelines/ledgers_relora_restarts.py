"""Pre-training a ledger-entry classifier with ReLoRA (high rank through low-rank updates).

Plan of a run
  1. warm start: every weight is trained for `warm_steps`;
  2. each hidden Linear is split into a frozen base and a rank-r update, and only
     the updates, the input layer, the norms and the head go on;
  3. every `cycle` steps the update is merged into the base, the factors start
     afresh (B = 0), their Adam moments are dropped and the rate is warmed up again.
Frozen weights change at merges only. Mid-cycle the run goes on from a checkpoint.
"""
import argparse
import math
import os
import tempfile
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    features: int = 40
    width: int = 96
    classes: int = 6
    rank: int = 4
    warm_steps: int = 40
    cycle: int = 80
    restart_warmup: int = 8
    steps: int = 700
    batch: int = 128
    lr: float = 4e-3
    seed: int = 61


class ReLoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = (
            nn.Parameter(torch.empty(*shape))
            for shape in ((rank, base.in_features), (base.out_features, rank))
        )
        self.reset()

    @torch.no_grad()
    def reset(self):
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.up.zero_()

    @torch.no_grad()
    def merge(self):
        self.base.weight.add_(self.up @ self.down)
        self.reset()

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.down), self.up)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.fc1, self.fc2 = (
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


def build(cfg):
    return nn.Sequential(
        nn.Linear(cfg.features, cfg.width),
        Block(cfg.width),
        Block(cfg.width),
        nn.LayerNorm(cfg.width),
        nn.Linear(cfg.width, cfg.classes),
    )


def make_ledger(cfg):
    """Entries are labelled by a smooth rule that mixes many columns."""
    rng = torch.Generator().manual_seed(cfg.seed)
    x = torch.randn(20000, cfg.features, generator=rng)
    w1, w2 = torch.randn(cfg.features, 10, generator=rng) / 6, torch.randn(
        10, cfg.classes, generator=rng
    )
    y = (torch.tanh(2 * x @ w1) @ w2).argmax(1)
    return (x[:18000], y[:18000]), (x[18000:], y[18000:])


class Trainer:
    def __init__(self, cfg, train, test):
        self.cfg, self.train_set, self.test_set = cfg, train, test
        torch.manual_seed(cfg.seed)
        self.model, self.step, self.low_rank, self.merges = build(cfg), 0, False, 0
        self.rng = torch.Generator().manual_seed(cfg.seed + 1)
        self.optimizer = self.new_optimizer()

    def new_optimizer(self):
        return torch.optim.AdamW(
            [p for p in self.model.parameters() if p.requires_grad],
            lr=self.cfg.lr,
            weight_decay=0.0,
        )

    def adapters(self):
        return [m for m in self.model.modules() if isinstance(m, ReLoRALinear)]

    def to_low_rank(self):
        for block in self.model:
            if isinstance(block, Block):
                block.fc1 = ReLoRALinear(block.fc1, self.cfg.rank)
                block.fc2 = ReLoRALinear(block.fc2, self.cfg.rank)
        self.low_rank, self.optimizer = (
            True,
            self.new_optimizer(),
        )  # the trained set changed

    def lr_now(self):
        """Cosine over the run, times a short ramp after the switch and after each merge."""
        cfg = self.cfg
        cosine = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * self.step / cfg.steps))
        since = (
            self.step
            if self.step < cfg.warm_steps
            else (self.step - cfg.warm_steps) % cfg.cycle
        )
        return cfg.lr * cosine * min(1.0, (since + 1) / cfg.restart_warmup)

    def merge_and_restart(self):
        x = self.test_set[0][:64]
        with torch.no_grad():
            before = self.model(x)
            for adapter in self.adapters():
                adapter.merge()
                for factor in (adapter.down, adapter.up):
                    self.optimizer.state.pop(
                        factor, None
                    )  # Adam begins again for these only
            torch.testing.assert_close(self.model(x), before, rtol=1e-4, atol=1e-4)
        self.merges += 1

    def fit(self, until):
        cfg, (x, y), losses = self.cfg, self.train_set, []
        self.model.train()
        while self.step < until:
            past_warm = self.step - cfg.warm_steps
            if past_warm >= 0 and past_warm % cfg.cycle == 0:
                self.merge_and_restart() if past_warm else self.to_low_rank()
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr_now()
            rows = torch.randint(len(x), (cfg.batch,), generator=self.rng)
            loss = F.cross_entropy(self.model(x[rows]), y[rows])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(
                [p for p in self.model.parameters() if p.requires_grad], 1.0
            )
            self.optimizer.step()
            losses.append(loss.item())
            if self.step % 50 == 0:
                print(
                    f"step {self.step:4d} loss {sum(losses[-20:]) / len(losses[-20:]):.3f} lr {self.lr_now():.5f}"
                )
            self.step += 1
        return losses

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        logits = self.model(self.test_set[0])
        self.model.train()
        y = self.test_set[1]
        return (
            F.cross_entropy(logits, y).item(),
            (logits.argmax(1) == y).float().mean().item(),
        )

    def save(self, path):
        torch.save(
            {
                "cfg": asdict(self.cfg),
                "model": self.model.state_dict(),
                "step": self.step,
                "optimizer": self.optimizer.state_dict(),
                "low_rank": self.low_rank,
                "merges": self.merges,
                "rng": self.rng.get_state(),
                "torch_rng": torch.get_rng_state(),
            },
            path,
        )

    @classmethod
    def load(cls, path, train, test):
        ckpt = torch.load(path, weights_only=True)
        self = cls(Config(**ckpt["cfg"]), train, test)
        if ckpt["low_rank"]:
            self.to_low_rank()  # same shape of model before the weights go in
        self.model.load_state_dict(ckpt["model"])
        self.optimizer.load_state_dict(ckpt["optimizer"])
        self.step, self.merges = ckpt["step"], ckpt["merges"]
        self.rng.set_state(ckpt["rng"])
        torch.set_rng_state(ckpt["torch_rng"])  # for the draws of new factors
        return self


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    cfg = Config(steps=ap.parse_args().steps)
    train, test = make_ledger(cfg)
    trainer = Trainer(cfg, train, test)
    start = trainer.evaluate()
    losses = trainer.fit(min(cfg.warm_steps + 1, cfg.steps))
    frozen_at = [a.base.weight.clone() for a in trainer.adapters()]
    losses += trainer.fit(int(cfg.steps * 0.55))

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ledger.pt")
        trainer.save(path)
        here = trainer.evaluate()
        trainer = Trainer.load(path, train, test)
    assert trainer.evaluate() == here, "the resumed model must score as the saved one"

    losses += trainer.fit(cfg.steps)
    end = trainer.evaluate()
    print(
        f"test loss {start[0]:.3f} -> {end[0]:.3f}, accuracy {start[1]:.3f} -> {end[1]:.3f}, merges {trainer.merges}"
    )
    if cfg.steps >= Config.steps:
        ranks = [
            int(torch.linalg.matrix_rank(a.base.weight - w0, atol=1e-4))
            for a, w0 in zip(trainer.adapters(), frozen_at)
        ]
        print("rank of the merged updates:", ranks)
        assert min(ranks) > cfg.rank and end[1] > start[1] + 0.3
        assert sum(losses[-20:]) < 0.6 * sum(losses[:20])


if __name__ == "__main__":
    main()
