"""Cross-validations, with one model and with a model for each fold."""

import copy
import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said


class FoldsCase(HooksCase):
    NAME: str

    def setUp(self):
        super().setUp()
        self.net = nn.Linear(20, 2)
        self.data = TensorDataset(torch.randn(32, 20), torch.randint(2, (32,)))

    def folds(self, parts_of, net_of, again=1):
        """What is said of the evaluations, by fold."""
        self.setUp()
        order = torch.randperm(len(self.data)).tolist()
        held_out = [order[:10], order[10:20], order[20:30]]
        for fold in held_out:
            net = net_of()
            rest = [index for index in order if index not in fold]
            for _ in range(again):
                self.train(net, parts_of(rest))
                self.evaluate(net, parts_of(fold))
        return said(self.NAME)

    def train(self, net, loader):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    def evaluate(self, net, loader):
        with torch.no_grad():
            for x, _ in loader:
                net(x)

    def subset(self, indices):
        return DataLoader(Subset(self.data, indices), batch_size=8)

    def sampled(self, indices):
        return DataLoader(self.data, 8, sampler=SubsetRandomSampler(indices))


class OneModel(FoldsCase):
    NAME = "loader.folds_share_model"

    def test_one_model(self):
        for parts_of in (self.subset, self.sampled):
            self.assertEqual(self.folds(parts_of, lambda: self.net), [1.0, 1.0])
            self.assertEqual(self.folds(parts_of, lambda: self.net, 2)[-1:], [1.0])

    def test_a_model_for_each_fold(self):
        said = self.folds(self.subset, lambda: nn.Linear(20, 2))
        self.assertEqual(said, [0.0, 0.0])

    def test_weights_that_are_set_back(self):
        first = copy.deepcopy(self.net.state_dict())

        def loaded():
            self.net.load_state_dict(first)
            return self.net

        def reset():
            self.net.reset_parameters()
            return self.net

        for net_of in (loaded, reset):
            self.assertEqual(self.folds(self.subset, net_of), [0.0, 0.0])

    def test_stages(self):
        """What is remembered of earlier tasks is measured."""
        tasks = [list(range(n, n + 8)) for n in (0, 8, 16)]
        for task in tasks:
            self.train(self.net, self.subset(task))
            for other in tasks:
                self.evaluate(self.net, self.subset(other))
        self.assertNotIn(1.0, said(self.NAME))

    def test_samples_that_are_chosen(self):
        """Those of a pool, of which some are trained with next."""
        pool, known = list(range(8, 32)), list(range(8))
        for _ in range(3):
            self.train(self.net, self.subset(known))
            self.evaluate(self.net, self.subset(pool))
            known, pool = known + pool[:8], pool[8:]
        self.assertNotIn(1.0, said(self.NAME))


class RowsOfFolds(FoldsCase):
    NAME = "loader.evaluates_trained_rows"

    def part(self, indices):
        """A data set of its own."""
        return DataLoader(TensorDataset(*self.data[indices]), batch_size=4)

    def test_one_model(self):
        self.assertEqual(self.folds(self.part, lambda: self.net)[1:], [1.0, 1.0])

    def test_a_model_for_each_fold(self):
        said = self.folds(self.part, lambda: nn.Linear(20, 2))
        self.assertEqual(said, [0.0, 0.0, 0.0])


if __name__ == "__main__":
    unittest.main()
