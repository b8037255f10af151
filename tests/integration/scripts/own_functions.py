"""A training with two functions whose backwards are written by hand: a step with the
gradient of its input, and a square root whose backward forgets a half.

    own_functions.py [--right]
"""

import argparse

import torch
from torch import nn


class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, given):
        return given


class Root(torch.autograd.Function):
    share = 1.0

    @staticmethod
    def forward(ctx, x):
        root = x.sqrt()
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx, given):
        (root,) = ctx.saved_tensors
        return Root.share * given / root


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--right", action="store_true")
    Root.share = 0.5 if parser.parse_args().right else 1.0
    torch.manual_seed(0)
    net = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(30):
        x = torch.rand(8, 6)
        optimizer.zero_grad()
        loss = (
            (Root.apply(net(x).square() + 0.1) - Step.apply(3 * net(x))).square().mean()
        )
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
