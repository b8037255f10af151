"""Terms of a loss that are numbers, and right ones that come close to it."""

import math
import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

EPSILON = 1e-8


class Mixture(nn.Module):
    """Keeps a term of the loss beside its result."""

    def __init__(self, as_number):
        super().__init__()
        self.layer = nn.Linear(5, 1)
        self.as_number = as_number
        self.extra = 0.0

    def forward(self, x):
        y = self.layer(x)
        extra = 0.1 * y.square().mean()
        self.extra = extra.item() if self.as_number else extra
        return y


def penalty(net):
    return float(sum(one.square().sum() for one in net.parameters()))


class Numbers(HooksCase):
    def setUp(self):
        super().setUp()
        self.net = nn.Linear(5, 1)

    def said(self, step, times=4):
        for _ in range(times):
            x, y = torch.randn(8, 5), torch.randn(8, 1)
            step(x, y)
            with torch.no_grad():
                for one in self.net.parameters():
                    one -= 0.1 * one.grad
        return said("loss.term_is_a_number")

    def test_a_term_in_the_sum(self):
        def step(x, y):
            out = self.net(x)
            loss = F.mse_loss(out, y) + 0.1 * out.square().mean().item()
            loss.backward()

        self.assertEqual(set(self.said(step)), {1.0})

    def test_a_term_that_has_a_name(self):
        def step(x, y):
            out = self.net(x)
            norm = out.square().mean().item()
            loss = F.mse_loss(out, y)
            loss += 0.1 * norm
            (loss / 2).backward()

        self.assertEqual(set(self.said(step)), {1.0})

    def test_an_attribute_of_a_model(self):
        for as_number, expected in ((True, {1.0}), (False, {0.0})):
            HooksCase.setUp(self)
            model = self.net = Mixture(as_number)

            def step(x, y):
                loss = F.mse_loss(model(x), y) + model.extra
                loss.backward()

            self.assertEqual(set(self.said(step)), expected)

    def test_a_number_that_a_function_gives(self):
        def step(x, y):
            extra = 0.0
            extra = penalty(self.net)
            loss = F.mse_loss(self.net(x), y) + extra
            loss.backward()

        self.assertEqual(self.said(step)[-1:], [1.0])

    def test_numbers_that_a_call_returns_with_others(self):
        def forward(x):
            return self.net(x), penalty(self.net)

        def step(x, y):
            out, extra = forward(x)
            loss = F.mse_loss(out, y) + 0.01 * extra
            loss.backward()

        self.assertEqual(set(self.said(step)), {1.0})

    def test_terms_with_graphs(self):
        def step(x, y):
            out = self.net(x)
            loss = F.mse_loss(out, y) + 0.1 * out.square().mean()
            loss.backward()

        self.assertEqual(set(self.said(step)), {0.0})

    def test_numbers_that_a_term_is_made_with(self):
        def scaled(out, scale):
            return scale * out.square().mean()

        def step(x, y):
            out = self.net(x)
            size = scaled(out, out.detach().std().item())
            loss = F.mse_loss(out, y) + size + EPSILON
            loss += scaled(out, out.detach().std().item())
            loss.backward()

        self.assertNotIn(1.0, self.said(step))

    def test_weights_that_are_numbers(self):
        def step(x, y):
            out = self.net(x)
            error, size = F.mse_loss(out, y), out.square().mean()
            loss = error / error.item() + size * size.item()
            loss.backward()

        self.assertEqual(set(self.said(step)), {0.0})

    def test_constants(self):
        def step(x, y):
            constant = 0.5 * len(x) * math.log(2 * math.pi)
            loss = F.mse_loss(self.net(x), y) + constant + EPSILON
            loss.backward()

        self.assertNotIn(1.0, self.said(step))

    def test_numbers_that_are_computed(self):
        widths = iter((0.5, 0.4, 0.3, 0.2))

        def step(x, y):
            width = next(widths)
            constant = math.log(width)
            loss = F.mse_loss(self.net(x), y) / width + constant
            loss.backward()

        self.assertNotIn(1.0, self.said(step))

    def test_a_loss_that_is_handed_on(self):
        def backward(loss):
            loss.backward()

        def step(x, y):
            out = self.net(x)
            size = out.square().mean().item()
            backward(F.mse_loss(out, y) + size)

        self.assertEqual(set(self.said(step)), {1.0})

    def test_a_name_that_becomes_a_number_later(self):
        def step(x, y):
            loss = F.mse_loss(self.net(x), y) + EPSILON
            loss.backward()
            loss = loss.item()
            return loss

        self.assertNotIn(1.0, self.said(step))

    def test_a_name_that_adds_up_numbers_elsewhere(self):
        def step(x, y):
            loss = F.mse_loss(self.net(x), y) + EPSILON
            loss.backward()
            loss = 0.0
            with torch.no_grad():
                for _ in range(2):
                    loss += F.mse_loss(self.net(x), y).item()
            return loss

        self.assertNotIn(1.0, self.said(step))

    def test_what_is_shown_beside_the_loss(self):
        def step(x, y):
            out = self.net(x)
            loss = F.mse_loss(out, y)
            shown = loss + out.square().mean().item()
            loss.backward()
            return shown

        self.assertNotIn(1.0, self.said(step))


if __name__ == "__main__":
    unittest.main()
