"""Bearing faults from vibration (depthwise conv1d), first in float, then quantisation-aware.

Stage two starts a new optimizer, fakes 8-bit weights and activations with straight-through
rounding, follows the ranges, then freezes the ranges and the BatchNorm statistics.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

FAULTS, LENGTH = 4, 128


def fake_quant(x, scale, low, high):
    """Rounds to the grid; the gradient passes inside the range and stops outside."""
    q = (x / scale).clamp(low, high)
    return (q + (q.round() - q).detach()) * scale


class Observer(nn.Module):
    """Symmetric 8-bit fake quantisation of activations, range by a moving average."""

    def __init__(self, momentum=0.1):
        super().__init__()
        self.momentum, self.on, self.frozen = momentum, False, False
        self.register_buffer("peak", torch.tensor(0.0))

    def forward(self, x):
        if not self.on:
            return x
        if self.training and not self.frozen:
            with torch.no_grad():
                top = x.abs().max()
                self.peak.copy_(
                    top if self.peak == 0 else self.peak.lerp(top, self.momentum)
                )
        return fake_quant(x, self.peak.clamp(min=1e-6) / 127, -128, 127)


class QConv(nn.Conv1d):
    quant = False

    def forward(self, x):
        w = self.weight
        if self.quant:
            scale = w.detach().abs().amax((1, 2), keepdim=True).clamp(min=1e-6) / 127
            w = fake_quant(w, scale, -127, 127)
        return self._conv_forward(x, w, self.bias)


def unit(cin, cout, stride):
    return nn.Sequential(
        QConv(cin, cin, 5, stride, 2, groups=cin, bias=False),
        QConv(cin, cout, 1, bias=False),
        nn.BatchNorm1d(cout),
        nn.ReLU6(),
        Observer(),
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = Observer()
        self.stem = nn.Sequential(
            QConv(1, 16, 7, 2, 3, bias=False),
            nn.BatchNorm1d(16),
            nn.ReLU6(),
            Observer(),
        )
        self.body = nn.Sequential(unit(16, 24, 2), unit(24, 32, 1), unit(32, 48, 2))
        self.head = QConv(48, FAULTS, 1)

    def forward(self, x):
        x = self.body(self.stem(self.inp(x)))
        return self.head(x.mean(-1, keepdim=True)).squeeze(-1)


def vibrations(n, gen):
    """Fault k rings at its own frequency, struck at its own period."""
    y = torch.randint(0, FAULTS, (n,), generator=gen)
    t = torch.arange(LENGTH).float()
    period = (torch.tensor([200, 31, 23, 17])[y]).unsqueeze(1)
    start = torch.rand(n, 1, generator=gen) * 17
    since = (t + start) % period
    pitch = (0.6 + 0.35 * y.float()).unsqueeze(1) * (
        1 + 0.03 * torch.randn(n, 1, generator=gen)
    )
    x = torch.exp(-since / 8) * torch.sin(pitch * since) + 0.35 * torch.randn(
        n, LENGTH, generator=gen
    )
    return x.unsqueeze(1), y


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


def epochs(x, y, size):
    while True:
        for idx in torch.randperm(len(x))[: len(x) // size * size].split(size):
            yield x[idx], y[idx]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60, help="of both stages together")
    args = p.parse_args()
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(6)
    x, y = vibrations(1600, gen)
    vx, vy = vibrations(400, gen)
    mean, std = x.mean(), x.std()
    x, vx = (x - mean) / std, (vx - mean) / std
    model, batches = Net(), epochs(x, y, 64)

    first = args.steps * 3 // 5
    opt = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [first * 2 // 3], gamma=0.3)
    model.train()
    for step in range(first):
        bx, by = next(batches)
        loss = F.cross_entropy(model(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 9 == 0 or step == first - 1:
            print(f"float {step:3d} loss {loss.item():.4f}")
    print(f"float accuracy {accuracy(model, vx, vy):.3f}")

    for m in model.modules():
        if isinstance(m, Observer):
            m.on = True
        elif isinstance(m, QConv):
            m.quant = True
    second = args.steps - first
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    for step in range(second):
        model.train()
        if step >= second // 2:  # ranges and statistics stay as they are from here on
            for m in model.modules():
                if isinstance(m, Observer):
                    m.frozen = True
                elif isinstance(m, nn.BatchNorm1d):
                    m.eval()
        bx, by = next(batches)
        loss = F.cross_entropy(model(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 6 == 0 or step == second - 1:
            print(f"8-bit {step:3d} loss {loss.item():.4f}")
    print(f"8-bit accuracy {accuracy(model, vx, vy):.3f}")


if __name__ == "__main__":
    main()
