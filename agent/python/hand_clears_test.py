"""Gradients that a program clears itself, and what is recorded of them."""

import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, train_step


class HandClears(HooksCase):
    def setUp(self):
        super().setUp()
        self.net = Net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def backward(self):
        self.net(torch.ones(5, 3)).sum().backward()

    def recorded(self):
        """Names of parameters of which a gradient was recorded as one that may have been
        cleared, since the last call."""
        records = CORE.of("state")
        CORE.log.clear()
        return [
            name
            for _, point, _, names in records
            if point == "GRAD_CLEAR"
            for name in names
        ]

    def test_at_the_first_backwards_behind_a_step(self):
        self.backward()
        self.assertEqual(self.recorded(), [])
        self.optimizer.step()
        self.assertEqual(self.recorded(), [])
        for parameter in self.net.parameters():
            parameter.grad.detach_()
            parameter.grad.zero_()
        self.backward()
        smallest = ["Net.head.bias", "Net.body.bias", "Net.norm.weight"]
        self.assertEqual(self.recorded(), smallest)
        for _ in range(7):
            self.backward()
            self.assertEqual(self.recorded(), smallest)
        self.backward()
        self.assertEqual(self.recorded(), [])

    def test_not_where_zero_grad_was_called(self):
        for _ in range(2):
            self.optimizer.zero_grad(set_to_none=False)
            self.assertEqual(len(self.recorded()), len(PARAMS) * (_ > 0))
            self.backward()
            self.optimizer.step()
            self.assertEqual(self.recorded(), [])

    def test_each_optimizer(self):
        other = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        train_step(self.net, self.optimizer)
        other(torch.ones(1, 2)).sum().backward()
        self.recorded()
        optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        self.recorded()
        other(torch.ones(1, 2)).sum().backward()
        self.assertEqual(self.recorded(), ["Linear.bias", "Linear.weight"])

    def test_an_optimizer_for_each_parameter(self):
        weights = [nn.Parameter(torch.ones(1)) for _ in range(40)]
        optimizers = [torch.optim.SGD([weight], lr=0.1) for weight in weights]
        torch.cat(weights).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        self.recorded()
        torch.cat(weights).sum().backward()
        self.assertEqual(len(self.recorded()), 16)


if __name__ == "__main__":
    unittest.main()
