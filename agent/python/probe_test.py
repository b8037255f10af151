"""Backwards that are written by hand beside difference quotients of their forwards."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

FOLDER = tempfile.TemporaryDirectory()
FILE = pathlib.Path(FOLDER.name, "probed.jsonl")
os.environ["TRAINCHECK_PROBE"] = str(FILE)
from hooks_case import HooksCase  # installs the hooks, with this setting


class Square(torch.autograd.Function):
    FACTOR = 2.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, given):
        (x,) = ctx.saved_tensors
        return Square.FACTOR * x * given


class Scale(torch.autograd.Function):
    """Its second input has a gradient of the wrong sign."""

    @staticmethod
    def forward(ctx, x, scale, power):
        ctx.save_for_backward(x, scale)
        ctx.power = power
        return x * scale**power, torch.tensor(3)

    @staticmethod
    def backward(ctx, given, _):
        x, scale = ctx.saved_tensors
        power = ctx.power
        return given * scale**power, -(given * x).sum() * power * scale, None


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, given):
        return given


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, given):
        return -given


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand_like(x) > 0.5
        ctx.save_for_backward(mask)
        return x.exp() * mask

    @staticmethod
    def backward(ctx, given):
        (mask,) = ctx.saved_tensors
        return given * mask  # without the exponential


class Single(torch.autograd.Function):
    """Takes one type, as a kernel does."""

    @staticmethod
    def forward(ctx, x):
        if x.dtype is not torch.float32:
            raise TypeError("float32 is expected")
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, given):
        (x,) = ctx.saved_tensors
        return given * x.cos()


class ProbeTest(HooksCase):
    def setUp(self):
        super().setUp()
        FILE.write_text("")
        torch.manual_seed(0)
        self.x = torch.randn(6, 4, requires_grad=True)

    def rows(self):
        return [json.loads(line) for line in FILE.read_text().splitlines()]

    def outcomes(self):
        return [row["outcome"] for row in self.rows()]

    # Each class is compared in its first calls alone.
    def call(self, function, *args):
        fresh = type(function.__name__, (function,), {})
        return fresh.apply(*args)

    def test_a_derivative(self):
        self.call(Square, self.x)
        self.assertEqual(self.outcomes(), ["equal"])

    def test_a_factor_too_much(self):
        Square.FACTOR = 4.0
        self.addCleanup(setattr, Square, "FACTOR", 2.0)
        self.call(Square, self.x)
        [row] = self.rows()
        self.assertEqual(row["outcome"], "differs")
        self.assertAlmostEqual(row["ratio"], 2.0, 3)
        self.assertEqual(row["function"], f"{__name__}.Square")
        self.assertTrue(row["file"].endswith("probe_test.py"))

    def test_one_of_two_inputs(self):
        scale = torch.tensor(1.5, requires_grad=True)
        self.call(Scale, self.x, scale, 2)
        [row] = self.rows()
        self.assertEqual((row["outcome"], row["ratio"]), ("differs", None))

    def test_what_is_meant(self):
        self.call(Round, 3 * self.x)
        self.call(Reverse, self.x)
        self.assertEqual(self.outcomes(), ["on purpose"] * 2)

    def test_random_numbers_are_those_of_the_call(self):
        before = torch.get_rng_state()
        first = self.call(Noisy, self.x)
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        with torch.no_grad():
            self.assertTrue(torch.equal(self.call(Noisy, self.x), first))
        self.assertTrue(torch.equal(torch.get_rng_state(), after))
        self.assertEqual(self.outcomes(), ["differs"])

    def test_single_precision(self):
        self.call(Single, self.x)
        self.assertEqual(self.outcomes(), ["equal"])

    def test_half_precision_is_not_compared(self):
        class Half(Single):
            @staticmethod
            def forward(ctx, x):
                if x.dtype is not torch.bfloat16:
                    raise TypeError("bfloat16 is expected")
                ctx.save_for_backward(x)
                return x.sin()

        Half.apply(self.x.detach().bfloat16().requires_grad_())
        [row] = self.rows()
        self.assertEqual(row["outcome"], "not compared")
        self.assertIn("float32", row["reason"])

    def test_two_calls_and_those_that_train(self):
        fresh = type("Fresh", (Square,), {})
        for _ in range(3):
            fresh.apply(self.x)
        with torch.no_grad():
            self.call(Square, self.x)
        self.call(Square, self.x.detach())
        self.assertEqual(self.outcomes(), ["equal"] * 2)


if __name__ == "__main__":
    unittest.main()
