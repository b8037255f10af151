"""Weights of classes that are their numbers of samples, and weights that are meant."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase, HooksCase, said

FAVOURS = "loss.favours_frequent"


class WeighsByFrequency(GraphCase):
    NAME = "loss.weighs_by_frequency"

    def of_batches(
        self, weight, shares=(0.75, 0.2, 0.05), size=256, binary=False, rounds=8
    ):
        """What is said at some backwards of one place, and of frequent classes."""
        HooksCase.setUp(self)
        net = nn.Linear(5, 1 if binary else len(shares))
        weight = torch.tensor(weight)
        drawn = torch.distributions.Categorical(torch.tensor(shares))
        for _ in range(rounds):
            labels, scores = drawn.sample((size,)), net(torch.randn(size, 5))
            if binary:
                labels = (labels == 1).float()[:, None]
                loss = F.binary_cross_entropy_with_logits(
                    scores, labels, pos_weight=weight
                )
            else:
                loss = F.cross_entropy(scores, labels, weight=weight)
            loss.backward()
        return set(said(self.NAME)), set(said(FAVOURS))

    def test_numbers_of_samples(self):
        of = self.of_batches
        self.assertEqual(of([75.0, 20.0, 5.0]), ({1.0}, set()))
        self.assertEqual(of([0.8, 0.2], (0.8, 0.2)), ({1.0}, set()))
        self.assertEqual(of([0.25], (0.8, 0.2), binary=True), ({1.0}, set()))

    def test_their_inverse(self):
        of = self.of_batches
        self.assertEqual(of([1.3, 5.0, 20.0]), ({0.0}, {0.0}))
        self.assertEqual(of([4.0], (0.8, 0.2), binary=True), ({0.0}, {0.0}))

    def test_costs_of_mistakes(self):
        of = self.of_batches
        self.assertEqual(of([9.0, 3.0, 1.0]), ({0.0}, {1.0}))
        self.assertEqual(of([0.1], (0.8, 0.2), binary=True), ({0.0}, {1.0}))

    def test_too_few_to_tell(self):
        found = self.of_batches([75.0, 20.0, 5.0], size=32)
        self.assertEqual(found, (set(), set()))

    def test_small_batches(self):
        """Targets are counted at each backward until that can be told."""
        found = self.of_batches([75.0, 20.0, 5.0], size=32, rounds=64)
        self.assertEqual(found, ({1.0}, set()))
        found = self.of_batches([16.0, 4.0, 1.0], size=32, rounds=64)
        self.assertEqual(found[0], {1.0})
        found = self.of_batches([9.0, 3.0, 1.0], size=32, rounds=64)
        self.assertEqual(found, ({0.0}, {1.0}))

    def test_no_weights(self):
        self.assertEqual(self.of_batches([1.0, 1.0, 1.0])[0], set())
        self.assertEqual(self.of_batches([1.0], (0.8, 0.2), binary=True)[0], set())


if __name__ == "__main__":
    unittest.main()
