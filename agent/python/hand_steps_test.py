"""Training without an optimizer of torch: are gradients cleared after each step? And
right programs that come close to the mistake."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, TARGETS, said

NAME = "loss.hand_steps_add_up"


def network():
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4))


class HandSteps(HooksCase):
    def train(self, step, clear, net=None, batches=1, rounds=6):
        net = net or network()
        for _ in range(rounds):
            for _ in range(batches):
                F.cross_entropy(net(torch.randn(8, 5)), TARGETS).backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    step(parameter)
                    clear(parameter)
        return said(NAME)

    @staticmethod
    def in_place(parameter):
        parameter -= 0.1 * parameter.grad

    @staticmethod
    def by_data(parameter):
        parameter.data = parameter.data - 0.1 * parameter.grad.data

    @staticmethod
    def to_data(parameter):
        parameter.data.add_(parameter.grad.data, alpha=-0.1)

    @staticmethod
    def keep(parameter):
        pass

    @staticmethod
    def zero(parameter):
        parameter.grad.zero_()

    @staticmethod
    def zero_data(parameter):
        parameter.grad.data.zero_()

    @staticmethod
    def drop(parameter):
        parameter.grad = None

    def test_gradients_that_are_never_cleared(self):
        for step in (self.in_place, self.to_data, self.by_data):
            HooksCase.setUp(self)
            self.assertEqual(self.train(step, self.keep), [1.0] * 4)

    def test_gradients_that_are_cleared(self):
        for clear in (self.zero, self.zero_data, self.drop):
            HooksCase.setUp(self)
            self.assertEqual(self.train(self.to_data, clear), [0.0] * 5)

    def test_gradients_of_several_backwards(self):
        self.assertEqual(self.train(self.in_place, self.zero, batches=3), [0.0] * 5)

    def test_a_step_after_several_backwards_that_clears_nothing(self):
        values = self.train(self.in_place, self.keep, batches=3)
        self.assertEqual(values, [1.0] * 4)

    def test_gradients_that_are_a_momentum(self):
        def decay(parameter):
            parameter.grad.mul_(0.9)

        self.assertEqual(self.train(self.in_place, decay), [0.0] * 5)

    def test_a_model_that_clears_them(self):
        net = network()

        def clear(parameter):
            net.zero_grad()

        def step(parameter):
            if parameter.grad is not None:
                self.in_place(parameter)

        self.assertEqual(self.train(step, clear, net), [0.0] * 5)

    def test_nothing_is_changed(self):
        self.assertEqual(self.train(self.keep, self.keep), [])

    def test_an_optimizer_of_torch(self):
        net = network()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(parameter):
            optimizer.step()

        self.assertEqual(self.train(step, self.keep, net), [])

    def test_a_new_model_each_time(self):
        for _ in range(4):
            self.train(self.in_place, self.keep, rounds=1)
        self.assertEqual(said(NAME), [])


if __name__ == "__main__":
    unittest.main()
