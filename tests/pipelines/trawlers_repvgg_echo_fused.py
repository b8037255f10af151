"""Radar patches of trawlers: a RepVGG net with branches in training and plain 3x3 layers on board.

The reader is the bottleneck on the ship's computer, so every batch read is used `echo` times, newly
augmented each time (data echoing). The learning rate counts optimiser steps, not batches read.
After training, the branches and their BatchNorms are folded into one convolution per block; the
folded net must agree with the trained one and is what is exported.
"""
import argparse
import copy
import json
import math
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    epochs: int = 5
    batch: int = 64
    echo: int = 2
    width: int = 16
    lr: float = 0.08
    weight_decay: float = 1e-4
    smoothing: float = 0.05
    patience: int = 3
    seed: int = 29


def radar(n, gen):
    """Four hulls on 14x14 patches, at any of a few places and strengths, with sea clutter."""
    y = torch.randint(4, (n,), generator=gen)
    canvas = torch.zeros(n, 1, 14, 14)
    cy = torch.randint(4, 10, (n,), generator=gen)
    cx = torch.randint(4, 10, (n,), generator=gen)
    arms = {
        0: [(0, k) for k in range(-3, 4)],  # broadside
        1: [(k, 0) for k in range(-3, 4)],  # bow on
        2: [(k, k) for k in range(-2, 3)]
        + [(k, -k) for k in range(-2, 3)],  # two hulls
        3: [(a, b) for a in (-2, 2) for b in range(-2, 3)],
    }  # trawler with its gear
    for i in range(n):
        for dy, dx in arms[int(y[i])]:
            canvas[i, 0, cy[i] + dy, cx[i] + dx] = 1.0
    gain = 0.6 + 0.8 * torch.rand(n, 1, 1, 1, generator=gen)
    return canvas * gain + 0.45 * torch.randn(n, 1, 14, 14, generator=gen), y


def augment(x):
    """Flips keep every class what it is; the sea is different each time."""
    x = x.flip([d for d in (2, 3) if torch.rand(()) < 0.5])
    return x * (0.9 + 0.2 * torch.rand(len(x), 1, 1, 1)) + 0.1 * torch.randn_like(x)


class RepBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.stride = stride
        self.conv3 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(cout)
        self.conv1 = nn.Conv2d(cin, cout, 1, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.bn0 = nn.BatchNorm2d(cin) if cin == cout and stride == 1 else None

    def forward(self, x):
        out = self.bn3(self.conv3(x)) + self.bn1(self.conv1(x))
        if self.bn0 is not None:
            out = out + self.bn0(x)
        return F.relu(out)

    @torch.no_grad()
    def folded(self):
        def fold(kernel, bn):
            scale = bn.weight / (bn.running_var + bn.eps).sqrt()
            return kernel * scale.view(-1, 1, 1, 1), bn.bias - bn.running_mean * scale

        k3, b3 = fold(self.conv3.weight, self.bn3)
        k1, b1 = fold(F.pad(self.conv1.weight, (1, 1, 1, 1)), self.bn1)
        kernel, bias = k3 + k1, b3 + b1
        if self.bn0 is not None:
            eye = torch.zeros_like(kernel)
            eye[torch.arange(len(eye)), torch.arange(len(eye)), 1, 1] = 1.0
            k0, b0 = fold(eye, self.bn0)
            kernel, bias = kernel + k0, bias + b0
        conv = nn.Conv2d(kernel.shape[1], kernel.shape[0], 3, self.stride, 1)
        conv.weight.copy_(kernel)
        conv.bias.copy_(bias)
        return nn.Sequential(conv, nn.ReLU())


def build(cfg: Config):
    w = cfg.width
    return nn.Sequential(
        RepBlock(1, w),
        RepBlock(w, w),
        RepBlock(w, 2 * w, 2),
        RepBlock(2 * w, 2 * w),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * w, 4),
    )


def fold_model(model):
    was = model.training
    model.eval()
    plain = nn.Sequential(
        *[m.folded() if isinstance(m, RepBlock) else copy.deepcopy(m) for m in model]
    )
    model.train(was)
    return plain.eval().requires_grad_(False)


class KeepBest:
    """Callback: early stopping; the best weights are put back at the end in any case."""

    def __init__(self, patience):
        self.patience, self.best, self.bad, self.state = patience, -1.0, 0, None

    def on_epoch_end(self, trainer, logs):
        if logs["valid_acc"] > self.best:
            self.best, self.bad = logs["valid_acc"], 0
            self.state = copy.deepcopy(trainer.model.state_dict())
        else:
            self.bad += 1
            trainer.stop = self.bad >= self.patience

    def on_train_end(self, trainer):
        trainer.model.load_state_dict(self.state)


class Trainer:
    def __init__(self, cfg, model, train, valid, keep):
        self.cfg, self.model, self.keep, self.stop = cfg, model, keep, False
        self.probe = valid[:64][0]
        self.train_loader = DataLoader(train, cfg.batch, shuffle=True, drop_last=True)
        self.valid_loader = DataLoader(valid, 200)
        self.opt = torch.optim.SGD(
            model.parameters(),
            lr=cfg.lr,
            momentum=0.9,
            nesterov=True,
            weight_decay=cfg.weight_decay,
        )
        total = cfg.epochs * len(self.train_loader) * cfg.echo
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt,
            lambda s: min(
                (s + 1) / 10, 0.5 * (1 + math.cos(math.pi * min(1.0, s / total)))
            ),
        )
        self.read = self.steps = 0

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.model.train()
            losses = []
            for x, y in self.train_loader:
                self.read += 1
                for _ in range(self.cfg.echo):  # the same rows again, seen differently
                    loss = F.cross_entropy(
                        self.model(augment(x)), y, label_smoothing=self.cfg.smoothing
                    )
                    self.opt.zero_grad(set_to_none=True)
                    loss.backward()
                    self.opt.step()
                    self.sched.step()
                    self.steps += 1
                    losses.append(loss.item())
            logs = {
                "epoch": epoch,
                "train_loss": sum(losses) / len(losses),
                **self.evaluate(self.model),
            }
            with torch.no_grad():  # evaluate() has left the model in eval mode
                gap = (
                    (self.model(self.probe) - fold_model(self.model)(self.probe))
                    .abs()
                    .max()
                    .item()
                )
            assert gap < 1e-3, gap
            self.keep.on_epoch_end(self, logs)
            print(json.dumps({k: round(v, 5) for k, v in logs.items()}))
            if self.stop:
                break
        self.keep.on_train_end(self)

    @torch.no_grad()
    def evaluate(self, model):
        model.eval()
        loss, right, n = 0.0, 0, 0
        for x, y in self.valid_loader:
            out = model(x)
            loss += F.cross_entropy(out, y, reduction="sum").item()
            right += (out.argmax(1) == y).sum().item()
            n += len(y)
        return {"valid_loss": loss / n, "valid_acc": right / n}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    torch.manual_seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed + 1)
    train, valid = radar(1400, gen), radar(400, gen)
    model = build(cfg)
    keep = KeepBest(cfg.patience)
    trainer = Trainer(cfg, model, TensorDataset(*train), TensorDataset(*valid), keep)
    trainer.fit()
    assert trainer.steps == cfg.echo * trainer.read
    plain = fold_model(model)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "onboard.pt")
        torch.jit.save(torch.jit.trace(plain, valid[0][:2]), path)
        onboard = torch.jit.load(path)
        scores = trainer.evaluate(onboard)
    print("on board:", scores, "best in training:", keep.best)
    assert abs(scores["valid_acc"] - keep.best) <= 0.005
    if cfg.epochs >= 5:
        assert keep.best > 0.85


if __name__ == "__main__":
    main()
