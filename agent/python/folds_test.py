"""Cross-validations, with one model and with a model for each fold."""

import copy
import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    DataLoader,
    Dataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said


class FoldsCase(HooksCase):
    NAME: str
    CUT_BATCH = 8

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

    def thirds(self):
        return [list(range(n, n + 10)) for n in (0, 10, 20)]

    def but(self, fold):
        return [index for index in range(30) if index not in fold]

    def models_in_turn(self, parts_of):
        """What is said of three models with a fold each: all for one epoch, then for the
        next."""
        self.setUp()
        nets = [nn.Linear(20, 2) for _ in range(3)]
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in nets]
        for _ in range(3):
            for net, optimizer, fold in zip(nets, optimizers, self.thirds()):
                self.train(net, parts_of(self.but(fold)), optimizer)
                self.evaluate(net, parts_of(fold))
        return said(self.NAME)

    def two_optimizers(self):
        """What is said of one model for all folds, whose parameters two step."""
        both = [torch.optim.SGD([one], lr=0.01) for one in self.net.parameters()]
        for fold in self.thirds():
            for optimizer in both:
                self.train(self.net, self.cut(self.but(fold)), optimizer)
            self.evaluate(self.net, self.cut(fold))
        return said(self.NAME)

    def train(self, net, loader, optimizer=None):
        optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.01)
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

    def cut(self, indices):
        """A data set of its own."""
        return DataLoader(TensorDataset(*self.data[indices]), self.CUT_BATCH)

    def table(self, indices):
        x, y = self.data[indices]
        return DataLoader(Table(x, y.tolist()), batch_size=8)

    def sampled(self, indices):
        return DataLoader(self.data, 8, sampler=SubsetRandomSampler(indices))


class Table(Dataset):
    """Of one's own: numbers of numpy, and targets in a list."""

    def __init__(self, x, y):
        self.y = y
        self.x = x.numpy()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return torch.from_numpy(self.x[index]), self.y[index]


class OneModel(FoldsCase):
    NAME = "loader.folds_share_model"

    def test_one_model(self):
        for parts_of in (self.subset, self.sampled, self.cut, self.table):
            self.assertEqual(self.folds(parts_of, lambda: self.net), [1.0, 1.0])
            self.assertEqual(self.folds(parts_of, lambda: self.net, 2)[-1:], [1.0])

    def test_a_model_for_each_fold(self):
        for parts_of in (self.subset, self.cut):
            said = self.folds(parts_of, lambda: nn.Linear(20, 2))
            self.assertEqual(said, [0.0, 0.0])

    def test_models_that_are_trained_in_turn(self):
        for parts_of in (self.subset, self.cut):
            self.assertNotIn(1.0, self.models_in_turn(parts_of))

    def test_two_optimizers(self):
        self.assertEqual(self.two_optimizers()[-2:], [1.0, 1.0])

    def test_beside_a_test_set_of_tensors(self):
        tests = self.cut(range(20))
        net = self.net

        def parts_of(indices):
            self.evaluate(net, tests)
            return self.subset(indices)

        self.assertEqual(self.folds(parts_of, lambda: net), [1.0, 1.0])

    def test_what_is_drawn_from_a_buffer(self):
        """Tensors of samples, some of which are scored that were trained with."""
        for first in range(0, 24, 4):
            self.train(self.net, self.cut(range(first, first + 8)))
            self.evaluate(self.net, self.cut(range(max(0, first - 8), first)))
        self.assertNotIn(1.0, said(self.NAME))

    def test_rows_that_are_equal(self):
        few = torch.randn(3, 20)[torch.randint(3, (32,))]
        self.data = TensorDataset(few, self.data[:][1])
        order = list(range(32))
        for fold in (order[:16], order[16:]):
            rest = [index for index in order if index not in fold]
            self.train(self.net, self.cut(rest))
            self.evaluate(self.net, self.cut(fold))
        self.assertEqual(said(self.NAME), [])

    def test_weights_that_are_set_back(self):
        first = copy.deepcopy(self.net.state_dict())

        def loaded():
            self.net.load_state_dict(first)
            return self.net

        def reset():
            self.net.reset_parameters()
            return self.net

        def written():
            for parameter in self.net.parameters():
                parameter.data.normal_(0, 0.02)
            return self.net

        for net_of in (loaded, reset, written):
            for parts_of in (self.subset, self.cut):
                self.assertEqual(self.folds(parts_of, net_of), [0.0, 0.0])

    def test_stages(self):
        """What is remembered of earlier tasks is measured."""
        tasks = [list(range(n, n + 8)) for n in (0, 8, 16)]
        for parts_of in (self.subset, self.cut):
            for task in tasks:
                self.train(self.net, parts_of(task))
                for other in tasks:
                    self.evaluate(self.net, parts_of(other))
        self.assertNotIn(1.0, said(self.NAME))

    def test_samples_that_are_chosen(self):
        """Those of a pool, of which some are trained with next."""
        for parts_of in (self.subset, self.cut):
            pool, known = list(range(8, 32)), list(range(8))
            for _ in range(3):
                self.train(self.net, parts_of(known))
                self.evaluate(self.net, parts_of(pool))
                known, pool = known + pool[:8], pool[8:]
        self.assertNotIn(1.0, said(self.NAME))


class RowsOfFolds(FoldsCase):
    NAME = "loader.evaluates_trained_rows"
    CUT_BATCH = 4

    def test_one_model(self):
        self.assertEqual(self.folds(self.cut, lambda: self.net)[1:], [1.0, 1.0])

    def test_models_that_are_trained_in_turn(self):
        self.assertNotIn(1.0, self.models_in_turn(self.cut))

    def test_two_optimizers(self):
        self.assertEqual(self.two_optimizers()[1:], [1.0, 1.0])

    def test_a_model_for_each_fold(self):
        said = self.folds(self.cut, lambda: nn.Linear(20, 2))
        self.assertEqual(said, [0.0, 0.0, 0.0])


if __name__ == "__main__":
    unittest.main()
