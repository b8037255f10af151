"""Classes that are balanced by a sampler and by the weights of the loss, and right
programs that come close to it."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

COUNTS = (400, 80, 20)


def labels_of(counts):
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


class BalancesTwice(HooksCase):
    NAME = "loss.balances_twice"

    def setUp(self):
        super().setUp()
        self.labels = labels_of(COUNTS)[torch.randperm(sum(COUNTS))]
        self.inverse = 1 / torch.tensor(COUNTS, dtype=torch.float64)

    def train(self, drawn, weight, loss=F.cross_entropy, **options):
        """drawn: weights of the samples, or of the classes."""
        self.setUp()
        if len(drawn) == len(COUNTS):
            drawn = drawn[self.labels]
        sampler = WeightedRandomSampler(drawn, len(self.labels), **options)
        rows = TensorDataset(torch.randn(len(self.labels), 5), self.labels)
        return self.of(
            DataLoader(rows, 48, sampler=sampler, drop_last=True), weight, loss
        )

    def of(self, loader, weight, loss=F.cross_entropy):
        net = nn.Linear(5, len(COUNTS))
        for x, y in loader:
            loss(net(x), y, weight=weight).backward()
        return set(said(self.NAME))

    def test_inverse_frequencies_twice(self):
        weight = self.inverse.float()
        self.assertEqual(self.train(self.inverse, weight), {1.0})
        self.assertEqual(self.train(self.inverse, weight * 500 / 3), {1.0})
        self.assertEqual(self.train(9 * self.inverse, weight), {1.0})

    def test_once(self):
        ones = torch.ones(3)
        self.assertEqual(self.train(self.inverse, None), {0.0})
        self.assertEqual(self.train(torch.ones(500), None), set())
        self.assertEqual(self.train(self.inverse, ones), {0.0})
        self.assertEqual(self.train(ones.double(), self.inverse.float()), set())
        self.assertEqual(self.train(torch.ones(500), self.inverse.float()), set())

    def test_roots_on_both_sides(self):
        root = self.inverse.sqrt()
        self.assertEqual(self.train(root, root.float()), set())
        self.assertEqual(self.train(self.inverse, root.float()), {0.0})
        self.assertEqual(self.train(root, self.inverse.float()), set())

    def test_weights_that_undo_what_was_drawn(self):
        counts = torch.tensor(COUNTS).float()
        self.assertEqual(self.train(self.inverse, counts), {0.0})

    def test_costs_of_mistakes(self):
        self.assertEqual(self.train(self.inverse, torch.tensor([1.0, 2, 9])), {0.0})

    def test_without_replacement(self):
        options = {"replacement": False}
        found = self.train(self.inverse, self.inverse.float(), **options)
        self.assertEqual(found, set())

    def test_weights_of_other_things(self):
        """Of sites, which are not the classes."""
        sites = labels_of((400, 80, 20))
        drawn = self.inverse[sites]
        self.assertEqual(self.train(drawn, self.inverse.float()), set())

    def test_classes_that_are_about_equal(self):
        self.setUp()
        labels = labels_of((100, 120, 90))
        inverse = 1 / torch.tensor([100.0, 120, 90])
        sampler = WeightedRandomSampler(inverse.double()[labels], 310)
        rows = TensorDataset(torch.randn(310, 5), labels)
        loader = DataLoader(rows, 48, sampler=sampler)
        self.assertEqual(self.of(loader, inverse), set())

    def test_two_classes_of_one_size(self):
        self.setUp()
        labels = labels_of((200, 40, 40))
        inverse = 1 / torch.tensor([200.0, 40, 40])
        sampler = WeightedRandomSampler(inverse.double()[labels], 280)
        rows = TensorDataset(torch.randn(280, 5), labels)
        loader = DataLoader(rows, 48, sampler=sampler)
        self.assertEqual(self.of(loader, inverse), {1.0})

    def test_rows_in_another_order(self):
        def mixed(scores, y, weight):
            return F.cross_entropy(scores, y.roll(1), weight=weight)

        found = self.train(self.inverse, self.inverse.float(), mixed)
        self.assertEqual(found, set())

    def test_another_loader(self):
        """Which shuffles, after one that has drawn."""
        self.setUp()
        weight = self.inverse.float()
        rows = TensorDataset(torch.randn(len(self.labels), 5), self.labels)
        drawn = self.inverse[self.labels]
        next(iter(DataLoader(rows, 48, sampler=WeightedRandomSampler(drawn, 500))))
        self.assertEqual(self.of(DataLoader(rows, 48, shuffle=True), weight), set())

    def test_workers(self):
        self.setUp()
        weight = self.inverse.float()
        rows = TensorDataset(torch.randn(len(self.labels), 5), self.labels)
        sampler = WeightedRandomSampler(self.inverse[self.labels], 500)
        loader = DataLoader(rows, 48, sampler=sampler, num_workers=1)
        self.assertEqual(self.of(loader, weight), {1.0})

    def positives(self, by_sampler, pos_weight):
        self.setUp()
        positive = (self.labels == 2).float()
        rare = float(positive.mean())
        drawn = torch.where(positive > 0, by_sampler(rare), by_sampler(1 - rare))
        sampler = WeightedRandomSampler(drawn.double(), 500)
        net = nn.Linear(5, 1)
        rows = TensorDataset(torch.randn(500, 5), positive)
        for x, y in DataLoader(rows, 48, sampler=sampler):
            weight = torch.tensor(pos_weight((1 - rare) / rare))
            F.binary_cross_entropy_with_logits(
                net(x), y[:, None], pos_weight=weight
            ).backward()
        return set(said(self.NAME))

    def test_positives(self):
        inverse, root = (lambda share: 1 / share), (lambda share: share**-0.5)
        self.assertEqual(self.positives(inverse, lambda ratio: ratio), {1.0})
        self.assertEqual(self.positives(inverse, lambda ratio: 1.0), {0.0})
        self.assertEqual(self.positives(root, lambda ratio: 1.0), set())
        self.assertEqual(self.positives(inverse, lambda ratio: 1 / ratio), {0.0})
        self.assertEqual(self.positives(root, lambda ratio: ratio**0.5), set())


class BalancesTwiceOnADevice(BalancesTwice):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
