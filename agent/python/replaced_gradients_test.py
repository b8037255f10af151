"""Gradients that are other tensors at each step, and those that add up."""

import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import SignsCase, last, said


class ReplacedGradients(SignsCase):
    """Nobody clears them, and each step has new ones."""

    NAME = "grads_replaced"

    def gradients(self):
        return torch.autograd.grad(self.loss(self.net), list(self.net.parameters()))

    def test_gradients_that_are_assigned(self):
        for _ in range(3):
            for parameter, gradient in zip(self.net.parameters(), self.gradients()):
                parameter.grad = gradient
            self.optimizer.step()
        self.assertEqual(last(self.NAME), 1.0)

    def test_before_the_second_step(self):
        """Where backwards run for others."""
        other = nn.Linear(3, 1)
        for _ in range(2):
            for parameter, gradient in zip(self.net.parameters(), self.gradients()):
                parameter.grad = gradient
            other(torch.randn(4, 3)).sum().backward()
            before = last(self.NAME)
            self.optimizer.step()
        self.assertEqual(before, 1.0)

    def test_none_are_there(self):
        """Set to None by hand, before the step that was to use them."""
        for _ in range(3):
            self.loss(self.net).backward()
            for parameter in self.net.parameters():
                parameter.grad = None
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [1.0])

    def test_written_in_place_behind_the_step(self):
        for _ in range(3):
            self.loss(self.net).backward()
            self.optimizer.step()
            for parameter in self.net.parameters():
                parameter.grad.mul_(0)
        self.assertEqual(last(self.NAME), 1.0)

    def test_written_in_place_before_the_step(self):
        for _ in range(3):
            self.loss(self.net).backward()
            for parameter in self.net.parameters():
                parameter.grad.mul_(0.5)
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [])

    def test_gradients_that_add_up(self):
        for _ in range(3):
            self.loss(self.net).backward()
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [])

    def test_they_add_up_later(self):
        for parameter, gradient in zip(self.net.parameters(), self.gradients()):
            parameter.grad = gradient
        self.optimizer.step()
        for parameter, gradient in zip(self.net.parameters(), self.gradients()):
            parameter.grad = gradient
        for _ in range(3):
            self.optimizer.step()
            self.loss(self.net).backward()
        self.assertEqual(last(self.NAME), 0.0)

    def test_backwards_that_make_a_graph_of_the_gradients(self):
        for _ in range(3):
            self.loss(self.net).backward(create_graph=True)
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [])

    def test_they_are_cleared(self):
        for _ in range(3):
            self.optimizer.zero_grad()
            self.loss(self.net).backward()
            self.optimizer.step()
        self.assertEqual(said(self.NAME), [])


if __name__ == "__main__":
    unittest.main()
