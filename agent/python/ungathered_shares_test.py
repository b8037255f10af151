"""Evaluations in shares whose results nobody brings together, as one rank of two sees
them."""

import pathlib
import sys
import unittest
import unittest.mock

import torch
from torch import nn
from torch.utils import data
from torch.utils.data.distributed import DistributedSampler

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, WATCH, said
from _traincheck import ungathered_shares

NAME = "opt.evaluates_a_share"


def table(rows=16):
    return data.TensorDataset(torch.randn(rows, 5))


class Shares(HooksCase):
    def setUp(self):
        super().setUp()
        patch = unittest.mock.patch.object(
            ungathered_shares, "_is_distributed", lambda: True
        )
        patch.start()
        self.addCleanup(patch.stop)
        self.net = nn.Linear(5, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.trained, self.held_out = table(), table()

    def train(self, exchange=None):
        for (x,) in data.DataLoader(self.trained, 8):
            self.optimizer.zero_grad()
            self.net(x).square().mean().backward()
            if exchange:
                WATCH.ungathered_shares.collective(exchange)
            self.optimizer.step()

    def evaluate(self, rows=None, within=None, shared=True, calls=True, most=9):
        rows = self.held_out if rows is None else rows
        sampler = DistributedSampler(rows, 2, 0) if shared else None
        with torch.no_grad():
            for number, (x,) in enumerate(data.DataLoader(rows, 4, sampler=sampler)):
                if number == most:
                    break
                if calls:
                    self.net(x)
                if within:
                    WATCH.ungathered_shares.collective(within)

    def said(self, *turns):
        for turn in turns:
            turn()
        # A step without such a pass takes back what was said (NaN).
        return [value for value in said(NAME) if value == value]

    def test_a_share_that_is_not_gathered(self):
        self.assertEqual(self.said(self.train, self.evaluate, self.train), [1.0])

    def test_each_epoch(self):
        turns = [self.train, self.evaluate] * 3
        self.assertEqual(self.said(*turns), [1.0] * 2)

    def test_collectives_that_bring_nothing(self):
        for name in ("barrier", "broadcast_object_list"):
            HooksCase.setUp(self)
            found = self.said(
                self.train, lambda: self.evaluate(within=name), self.train
            )
            self.assertEqual(found, [1.0])

    def test_what_is_exchanged_in_the_training_alone(self):
        train = lambda: self.train(exchange="all_reduce")
        self.assertEqual(self.said(train, self.evaluate, train), [1.0])

    def test_results_that_are_gathered(self):
        gather = lambda: WATCH.ungathered_shares.collective("all_gather")
        found = self.said(self.train, self.evaluate, gather, self.train)
        self.assertEqual(found, [0.0])

    def test_results_that_are_gathered_with_each_batch(self):
        evaluate = lambda: self.evaluate(within="all_reduce")
        self.assertEqual(self.said(self.train, evaluate, self.train), [0.0])

    def test_two_sets_that_are_gathered_together(self):
        gather = lambda: WATCH.ungathered_shares.collective("all_reduce")
        other = lambda: self.evaluate(table())
        found = self.said(self.train, self.evaluate, other, gather, self.train)
        self.assertEqual(found, [0.0])

    def test_the_whole_data_on_each_rank(self):
        whole = lambda: self.evaluate(shared=False)
        self.assertEqual(self.said(self.train, whole, self.train), [])

    def test_before_anything_is_trained(self):
        self.assertEqual(self.said(self.evaluate, self.train), [])

    def test_what_is_trained_with(self):
        again = lambda: self.evaluate(self.trained)
        self.assertEqual(self.said(self.train, again, self.train), [])

    def test_data_that_no_model_is_given(self):
        reads = lambda: self.evaluate(calls=False)
        self.assertEqual(self.said(self.train, reads, self.train), [])

    def test_a_part_of_a_pass(self):
        part = lambda: self.evaluate(most=1)
        self.assertEqual(self.said(self.train, part, self.train), [])


if __name__ == "__main__":
    unittest.main()
