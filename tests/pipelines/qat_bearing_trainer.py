"""Remaining life of bearings on an 8 bit controller: float training, then quantization-aware.

    python qat_bearing_trainer.py --steps 200

The second phase starts from the float weights with a fresh optimizer and a lower rate,
learns from the labels and from the float network, and fake-quantizes with straight-through
gradients. Ranges of activations are followed by hand in buffers, until they are fixed;
BatchNorm is frozen at the same time. Weights are exported as int8 and checked.
"""

import argparse
import copy
import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("bearing")


class FakeQuant(torch.autograd.Function):
    """Rounds to the grid; gradient passes where the value lies within the range."""

    @staticmethod
    def forward(ctx, x, scale, zero, low, high):
        q = torch.round(x / scale) + zero
        ctx.save_for_backward((q >= low) & (q <= high))
        return (q.clamp(low, high) - zero) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None, None, None


class ActivationQuant(nn.Module):
    """Unsigned 8 bit, range by a running mean of minimum and maximum."""

    def __init__(self, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.enabled, self.observing = False, False
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training and self.observing:
            with torch.no_grad():
                rate = 1.0 if self.seen == 0 else self.momentum
                self.low.lerp_(x.min().clamp(max=0), rate)
                self.high.lerp_(x.max().clamp(min=0), rate)
                self.seen += 1
        if not self.enabled:
            return x
        scale = ((self.high - self.low) / 255).clamp(min=1e-8)
        zero = torch.round(-self.low / scale)
        return FakeQuant.apply(x, scale, zero, 0, 255)


class QuantConv1d(nn.Conv1d):
    """Signed 8 bit weights, symmetric, one scale per output channel."""

    quantize = False

    def weight_scale(self):
        return (self.weight.detach().abs().amax((1, 2), keepdim=True) / 127).clamp(
            min=1e-8
        )

    def forward(self, x):
        w = self.weight
        if self.quantize:
            w = FakeQuant.apply(w, self.weight_scale(), 0.0, -127, 127)
        return self._conv_forward(x, w, self.bias)


class LifeNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers, inputs = [ActivationQuant()], 2
        for kernel, stride in ((9, 3), (7, 3), (5, 2)):
            layers += [
                QuantConv1d(inputs, width, kernel, stride, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                ActivationQuant(),
            ]
            inputs = width
        self.body = nn.Sequential(*layers)
        self.head = QuantConv1d(width, 1, 1)

    def forward(self, x):
        return self.head(self.body(x).mean(-1, keepdim=True)).flatten()


def vibrations(n, seed, length=240):
    """Two axes; wear brings impacts at the defect frequency and a rougher noise."""
    g = torch.Generator().manual_seed(seed)
    wear = torch.rand(n, 1, generator=g)
    t = torch.arange(length)
    rate = 0.04 + 0.02 * torch.rand(n, 1, generator=g)
    impact = torch.exp(-8 * ((t * rate + torch.rand(n, 1, generator=g)) % 1))
    ring = impact * torch.sin(1.9 * t) * wear
    speed = torch.sin(6.2832 * (0.013 * t + torch.rand(n, 1, generator=g)))
    noise = torch.randn(n, 2, length, generator=g) * (0.15 + 0.15 * wear[..., None])
    gain = 0.8 + 0.4 * torch.rand(n, 1, generator=g)
    x = torch.stack([gain * (2 * ring + 0.6 * speed), gain * (ring + 0.6 * speed)], 1)
    return TensorDataset(x + noise, 1 - wear.flatten())


class Trainer:
    def __init__(self, model, train_set, valid_set, out_dir, batch_size=64):
        self.model = model
        self.train_loader = DataLoader(
            train_set, batch_size, shuffle=True, drop_last=True
        )
        self.valid_loader = DataLoader(valid_set, 128)
        self.out_dir = Path(out_dir)
        self.teacher = None
        self.frozen = False
        self.global_step = 0

    def activations(self):
        return [m for m in self.model.modules() if isinstance(m, ActivationQuant)]

    def convs(self):
        return [m for m in self.model.modules() if isinstance(m, QuantConv1d)]

    def train_mode(self):
        self.model.train()
        if self.frozen:
            for m in self.model.modules():
                if isinstance(m, nn.BatchNorm1d):
                    m.eval()

    def compute_loss(self, x, y):
        out = self.model(x)
        loss = nn.functional.smooth_l1_loss(out, y, beta=0.1)
        if self.teacher is not None:
            with torch.no_grad():
                target = self.teacher(x)
            loss = 0.5 * loss + 0.5 * nn.functional.smooth_l1_loss(
                out, target, beta=0.1
            )
        return loss

    def fit(self, steps, lr, freeze_after=None):
        optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
            optimizer, steps, lr / 20
        )
        self.train_mode()
        done = 0
        while done < steps:
            for x, y in self.train_loader:
                if freeze_after is not None and done == freeze_after:
                    self.freeze()
                loss = self.compute_loss(x, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                done += 1
                self.global_step += 1
                if self.global_step % 10 == 0:
                    log.info("step %d loss %.5f", self.global_step, loss.item())
                if done == steps:
                    break
            log.info("validation error %.4f", self.validate())

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        total = sum(
            (self.model(x) - y).abs().sum().item() for x, y in self.valid_loader
        )
        self.train_mode()
        return total / len(self.valid_loader.dataset)

    def prepare_qat(self):
        self.teacher = copy.deepcopy(self.model).eval().requires_grad_(False)
        for m in self.convs():
            m.quantize = True
        for m in self.activations():
            m.observing = True
        self.train_mode()
        with torch.no_grad():  # ranges first, on a few batches of training data
            for (x, _), _ in zip(self.train_loader, range(4)):
                self.model(x)
        for m in self.activations():
            m.enabled = True

    def freeze(self):
        log.info("ranges and batch norm fixed at step %d", self.global_step)
        self.frozen = True
        for m in self.activations():
            m.observing = False
        self.train_mode()

    @torch.no_grad()
    def export(self):
        arrays, worst = {}, 0.0
        for name, m in self.model.named_modules():
            if isinstance(m, QuantConv1d):
                scale = m.weight_scale()
                q = torch.round(m.weight / scale).clamp(-127, 127).to(torch.int8)
                used = FakeQuant.apply(m.weight, scale, 0.0, -127, 127)
                worst = max(worst, (q * scale - used).abs().max().item())
                arrays[f"{name}.weight"] = q.numpy()
                arrays[f"{name}.scale"] = scale.flatten().numpy()
        path = self.out_dir / "controller.npz"
        np.savez(path, **arrays)
        log.info("%s, %d bytes, difference %.1e", path.name, path.stat().st_size, worst)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    torch.set_num_threads(1)
    torch.manual_seed(15)
    float_steps = args.steps * 5 // 8
    qat_steps = args.steps - float_steps
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(LifeNet(), vibrations(1280, 1), vibrations(256, 2), folder)
        trainer.fit(float_steps, lr=2e-3)
        trainer.prepare_qat()
        trainer.fit(qat_steps, lr=2e-4, freeze_after=qat_steps // 2)
        trainer.export()


if __name__ == "__main__":
    main()
