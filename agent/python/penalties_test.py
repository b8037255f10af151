"""Penalties of gradients."""

import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase, HooksCase, said


class Penalties(GraphCase):
    NAME = "loss.penalty_without_graph"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
        self.x = torch.randn(16, 5, requires_grad=True)

    def of(self, loss, **options):
        HooksCase.setUp(self)
        scores = self.net(self.x)
        [slope] = torch.autograd.grad(
            outputs=loss(scores), inputs=self.x, retain_graph=True, **options
        )
        penalty = (slope.norm(dim=1) - 1).square().mean()
        (scores.mean() - self.net(self.x + 1).mean() + 10 * penalty).backward()
        return said(self.NAME)

    def test_gradients_without_a_graph(self):
        self.assertEqual(self.of(torch.sum), [1.0])
        ones = torch.ones(16, 1)
        self.assertEqual(self.of(lambda scores: scores, grad_outputs=ones), [1.0])

    def second_order(self, first, last, *, then=None, term=0.0):
        """Gradients of gradients, of which the last ones have a graph, or not."""
        HooksCase.setUp(self)
        x = torch.randn(16, 1, requires_grad=True)
        u = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        ones = torch.ones(16, 1)
        slope = lambda y, graph: torch.autograd.grad(
            y, x, ones, retain_graph=True, create_graph=graph
        )[0]
        of_first = slope(u(x), first)
        of_second = slope(slope(u(x), True), last)
        if then is not None:
            of_second = slope(slope(u(x), True), then)
        residual = (of_first - 0.1 * of_second).square().mean()
        start = (u(torch.zeros(4, 1)) - 1).square().mean()
        (residual + 10 * start + term).backward()
        return said(self.NAME)

    def test_derivatives_of_second_order(self):
        self.assertEqual(self.second_order(False, False), [1.0])
        self.assertEqual(self.second_order(True, True), [0.0])
        self.assertEqual(self.second_order(False, True), [0.0])

    def test_numbers_of_a_validation_before(self):
        self.assertEqual(self.second_order(True, False, then=True, term=1.0), [0.0])
        # Those of the first order may be logged.
        self.assertEqual(self.second_order(False, True, term=1.0), [0.0])

    def test_gradients_with_a_graph(self):
        self.assertEqual(self.of(torch.sum, create_graph=True), [0.0])

    def test_gradients_of_a_loss(self):
        self.assertEqual(self.of(lambda scores: scores.square().mean()), [])

    def test_gradients_that_the_loss_does_not_need(self):
        torch.autograd.grad(self.net(self.x).sum(), [self.x])
        self.net(self.x).square().mean().backward()
        self.assertEqual(said(self.NAME), [])
        torch.autograd.grad(self.net(self.x).sum(), list(self.net.parameters()))
        (self.net(self.x).mean() + 1).backward()
        self.assertEqual(said(self.NAME), [])


class Scripted(HooksCase):
    def test_a_script_that_takes_gradients(self):
        x = torch.ones(3, requires_grad=True)
        self.assertEqual(torch.jit.script(slope)(x).tolist(), [2.0, 2.0, 2.0])


def slope(x: torch.Tensor):
    gradients = torch.autograd.grad([(x * x).sum()], [x])
    return gradients[0]


if __name__ == "__main__":
    unittest.main()
