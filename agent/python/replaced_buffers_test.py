"""Buffers that checkpointed regions put new tensors in the place of."""

import pathlib
import sys
import unittest

import torch
import torch.utils.checkpoint
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase
from hooks_case import said as scalars

NAME = "recompute.writes_buffers"


class Layer(nn.Module):
    """Puts what `made` makes of its buffer and its input in the buffer's place."""

    def __init__(self, made):
        super().__init__()
        self.linear = nn.Linear(5, 5)
        self.register_buffer("kept", torch.zeros(5))
        self.made = made

    def forward(self, x):
        with torch.no_grad():
            self.kept = self.made(self.kept, x)
        return self.linear(x)


class Net(nn.Module):
    def __init__(self, made, calls=1, reentrant=False):
        super().__init__()
        self.inner = Layer(made)
        self.calls = calls
        self.reentrant = reentrant

    def forward(self, x):
        for _ in range(self.calls):
            x = torch.utils.checkpoint.checkpoint(
                self.inner, x, use_reentrant=self.reentrant
            )
        return x


class ReplacedBuffers(HooksCase):
    LOOKS = 3  # that it takes

    def of(self, net, steps=8):
        torch.manual_seed(0)
        for _ in range(steps):
            net(torch.randn(8, 5, requires_grad=True)).square().mean().backward()
        return scalars(NAME)

    def test_sums_and_averages(self):
        for made in (
            lambda kept, x: kept + (x > 0).sum(0),
            lambda kept, x: 0.99 * kept + 0.01 * x.mean(0),
            lambda kept, x: torch.lerp(kept, x.var(0), 0.1),
            lambda kept, x: kept + 1,
        ):
            for reentrant in (False, True):
                HooksCase.setUp(self)
                found = self.of(Net(made, reentrant=reentrant))
                self.assertEqual(found, [0.0] * self.LOOKS + [1.0] * (8 - self.LOOKS))

    def test_later_ones(self):
        found = self.of(Net(lambda kept, x: kept + 1), steps=129)
        self.assertEqual(found, [0.0] * self.LOOKS + [1.0] * (10 - self.LOOKS))

    def test_what_is_made_anew(self):
        table = torch.arange(5.0)
        for made in (
            lambda kept, x: table.cos(),
            lambda kept, x: x.mean(0),
            lambda kept, x: x[0, :1].abs(),
            lambda kept, x: torch.maximum(kept, x.abs().amax(0)),
            lambda kept, x: torch.full((5,), float("nan")),
            lambda kept, x: x.detach().clone(),
        ):
            for calls in (1, 2):
                HooksCase.setUp(self)
                self.assertEqual(self.of(Net(made, calls)), [0.0] * 8)

    def test_a_sum_outside_of_the_region(self):
        class Outside(Net):
            def forward(self, x):
                self.rows = self.rows + len(x)
                return super().forward(x)

        net = Outside(lambda kept, x: kept)
        net.register_buffer("rows", torch.zeros(()))
        self.assertEqual(self.of(net), [0.0] * 8)

    def test_models_that_come_and_go(self):
        for _ in range(3):
            self.of(Net(lambda kept, x: x.mean(0)), steps=1)
        found = self.of(Net(lambda kept, x: kept + 1), steps=self.LOOKS + 1)
        self.assertEqual(found, [0.0] * (self.LOOKS + 3) + [1.0])


class ReplacedBuffersOnADevice(ReplacedBuffers):
    ON_DEVICE = True
    LOOKS = 4


if __name__ == "__main__":
    unittest.main()
