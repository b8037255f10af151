"""Averages that one call stores for and puts in, and that are not taken out again."""

import copy
import pathlib
import sys
import unittest

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, Net, said, train_step


class Shadow:
    def __init__(self, model=None):
        self.model = model

    def apply_shadow(self, model=None):
        pass

    def restore(self, model=None):
        pass


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


class AtOnce(HooksCase):
    def setUp(self):
        super().setUp()
        self.model, self.other = Net(), Net()
        self.optimizer = sgd(self.model)
        self.of_other = sgd(self.other)
        train_step(self.model, self.optimizer)

    def said(self):
        train_step(self.model, self.optimizer)
        return said("opt.average_left_in")

    def test_left_in(self):
        Shadow(self.model).apply_shadow()
        self.assertEqual(self.said(), [1.0])

    def test_left_in_what_is_given(self):
        averages = Shadow()
        averages.apply_shadow(self.model)
        self.assertEqual(self.said(), [1.0])

    def test_taken_out_again(self):
        averages = Shadow(self.model)
        for _ in range(2):
            averages.apply_shadow()
            averages.restore()
        self.assertEqual(self.said(), [0.0])

    def test_put_into_a_copy(self):
        averages, twin = Shadow(), copy.deepcopy(self.model)
        averages.apply_shadow(twin)
        self.assertEqual(self.said(), [])

    def test_weights_that_are_read_back(self):
        averages, state = Shadow(self.model), self.model.state_dict()
        averages.apply_shadow()
        self.model.load_state_dict(state)
        self.assertEqual(self.said(), [0.0])

    def test_another_model_that_is_read_back(self):
        averages = Shadow(self.model)
        averages.apply_shadow()
        self.other.load_state_dict(self.model.state_dict())
        train_step(self.other, self.of_other)
        self.assertEqual(self.said(), [1.0])

    def test_another_training(self):
        Shadow(self.model).apply_shadow()
        self.optimizer = sgd(self.model)
        self.assertEqual(self.said(), [])


if __name__ == "__main__":
    unittest.main()
