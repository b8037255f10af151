"""Adapt a vibration classifier to a second quarry on a logger that cannot backpropagate.

Phase 1 (workstation): ordinary Adam training of the body on quarry A.
Phase 2 (logger): quarry B has other sensors (gain and offset per band), so only a
per-band input adapter is tuned, with two forward passes per probe (MeZO / SPSA): the
random direction is never stored, it is drawn again from its seed.
The logger keeps a journal of (seed, slope, lr); the same weights can be rebuilt from it.
"""
import argparse

import torch
from torch import nn
import torch.nn.functional as F

BANDS, KINDS = 24, 4  # blast, truck, crusher, far earthquake


class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(BANDS))
        self.offset = nn.Parameter(torch.zeros(BANDS))

    def forward(self, x):
        return x * self.gain + self.offset


class Vibration(nn.Module):
    def __init__(self):
        super().__init__()
        self.adapter = Adapter()
        self.body = nn.Sequential(
            nn.Linear(BANDS, 64),
            nn.LayerNorm(64),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(64, 32),
            nn.GELU(),
            nn.Linear(32, KINDS),
        )

    def forward(self, x):
        return self.body(self.adapter(x))


def make_quarries(gen):
    centres = torch.randn(KINDS, BANDS, generator=gen)

    def draw(n):
        y = torch.randint(0, KINDS, (n,), generator=gen)
        return centres[y] + 0.9 * torch.randn(n, BANDS, generator=gen), y

    gain = 0.4 + 1.2 * torch.rand(BANDS, generator=gen)
    shift = 1.2 * torch.randn(BANDS, generator=gen)

    def other_sensors(xy):
        return xy[0] * gain + shift, xy[1]

    return (draw(2048), draw(512), other_sensors(draw(1024)), other_sensors(draw(1024)))


@torch.no_grad()
def accuracy(model, data):
    was_training = model.training
    model.eval()
    acc = (model(data[0]).argmax(-1) == data[1]).float().mean().item()
    model.train(was_training)
    return acc


def pretrain(model, data, epochs, gen):
    model.train()
    opt = torch.optim.Adam(model.body.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total = 0.0
        for idx in torch.randperm(len(data[0]), generator=gen).split(128):
            loss = F.cross_entropy(model(data[0][idx]), data[1][idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(idx)
        print(f"[A] epoch {epoch}  loss {total / len(data[0]):.4f}")


def nudge(params, seed, scale):
    """params += scale * z(seed), with z drawn again each time."""
    g = torch.Generator().manual_seed(seed)
    for p in params:
        p.add_(torch.randn(p.shape, generator=g), alpha=scale)


@torch.no_grad()
def mezo(model, params, data, steps, gen, eps=1e-2, lr0=0.03, probes=4):
    # eval mode on purpose: both probes must look at one and the same function
    model.eval()
    journal, history = [], []
    n = len(data[0])
    order, at = torch.randperm(n, generator=gen), 0
    for step in range(steps):
        if at + 256 > n:
            order, at = torch.randperm(n, generator=gen), 0
        idx = order[at : at + 256]
        at += 256
        x, y = data[0][idx], data[1][idx]
        lr = lr0 * (1 - 0.9 * step / steps)
        slopes = []
        for seed in torch.randint(0, 2**31 - 1, (probes,), generator=gen).tolist():
            nudge(params, seed, eps)
            up = F.cross_entropy(model(x), y).item()
            nudge(params, seed, -2 * eps)
            down = F.cross_entropy(model(x), y).item()
            nudge(params, seed, eps)
            slopes.append((seed, (up - down) / (2 * eps)))
            history.append((up + down) / 2)
        for seed, slope in slopes:
            nudge(params, seed, -lr * slope / probes)
            journal.append((seed, slope, lr / probes))
        if step % 40 == 0 or step == steps - 1:
            print(
                f"[B] step {step:3d}  loss {sum(history[-probes:]) / probes:.4f}  lr {lr:.4f}"
            )
    return journal, history


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps", type=int, default=240, help="forward-only steps on quarry B"
    )
    ap.add_argument("--epochs", type=int, default=5, help="ordinary epochs on quarry A")
    args = ap.parse_args()
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(5)
    train_a, test_a, train_b, test_b = make_quarries(gen)

    model = Vibration()
    model.adapter.requires_grad_(False)
    pretrain(model, train_a, args.epochs, gen)
    print(f"quarry A test accuracy {accuracy(model, test_a):.3f}")
    assert torch.equal(model.adapter.gain, torch.ones(BANDS))

    # From here nothing has a gradient any more: drop the buffers as well.
    model.requires_grad_(False)
    model.zero_grad(set_to_none=True)
    body_before = [p.clone() for p in model.body.parameters()]
    start = accuracy(model, test_b)
    params = [model.adapter.gain, model.adapter.offset]
    journal, history = mezo(model, params, train_b, args.steps, gen)
    end = accuracy(model, test_b)
    print(f"quarry B test accuracy {start:.3f} -> {end:.3f}")

    assert all(torch.equal(a, b) for a, b in zip(body_before, model.body.parameters()))
    assert all(p.grad is None for p in model.parameters())

    twin = Adapter().requires_grad_(False)
    for seed, slope, rate in journal:
        nudge([twin.gain, twin.offset], seed, -rate * slope)
    worst = max((a - b).abs().max().item() for a, b in zip(twin.parameters(), params))
    print(f"rebuilt from {len(journal)} journal lines, largest difference {worst:.1e}")
    assert worst < 1e-3, worst
    if args.steps >= 200:
        assert sum(history[-40:]) < 0.8 * sum(history[:40])
        assert end > start + 0.05, (start, end)


if __name__ == "__main__":
    main()
