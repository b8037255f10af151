"""Trains a small convolutional classifier with a sign optimizer that has momentum.

The pictures are made up: stripes of five directions in noise.
"""

import argparse

import torch
from torch import nn
from torch.optim import Optimizer


class SignSGD(Optimizer):
    """Moves each weight by the sign of its averaged gradient."""

    def __init__(self, params, lr=1e-3, momentum=0.9, weight_decay=0.0, keep=False):
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        self.keep = keep
        super().__init__(params, defaults)

    def init_group(self, group):
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if group["momentum"] > 0 and not (self.keep and "momentum_buffer" in state):
                state["momentum_buffer"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.init_group(group)
            for p in group["params"]:
                if p.grad is None:
                    continue
                if group["weight_decay"]:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                if group["momentum"] > 0:
                    buffer = self.state[p]["momentum_buffer"]
                    buffer.mul_(group["momentum"]).add_(
                        p.grad, alpha=1 - group["momentum"]
                    )
                else:
                    buffer = p.grad
                p.add_(torch.sign(buffer), alpha=-group["lr"])
        return loss


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
        )
        self.classify = nn.Linear(144, classes)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


def stripes(count, side=12):
    label = torch.randint(5, (count,))
    angle = (label * 3.1416 / 5)[:, None, None]
    axis = torch.arange(side).float()
    along = angle.cos() * axis[:, None] + angle.sin() * axis[None, :]
    phase = 6.28 * torch.rand(count, 1, 1)
    picture = torch.sin(1.3 * along + phase) + 0.5 * torch.randn(count, side, side)
    return picture[:, None], label


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=60)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Net()
    optimizer = SignSGD(
        model.parameters(), lr=3e-3, weight_decay=1e-3, keep=options.fixed
    )
    weight = model.classify.weight
    average = torch.zeros_like(weight)
    for step in range(options.steps):
        x, y = stripes(32)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        average = 0.9 * average + 0.1 * weight.grad
        before = weight.detach().clone()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        moved = torch.sign(before - weight.detach())
        wrong = (moved != torch.sign(average))[average != 0].float().mean().item()
        print("fault shows:", "yes" if wrong > 0.05 else "no")


if __name__ == "__main__":
    main()
