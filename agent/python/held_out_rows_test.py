"""Losses over rows that masks hold out, and right ones that come close to it."""

import pathlib
import sys
import types
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

ROWS, CLASSES = 60, 3


def masks_of(rows=ROWS):
    drawn = torch.rand(rows, generator=torch.Generator().manual_seed(0))
    return {
        "train_mask": drawn < 0.3,
        "val_mask": (drawn >= 0.3) & (drawn < 0.6),
        "test_mask": drawn >= 0.6,
    }


class Stored:
    """As a graph of torch_geometric."""

    def __init__(self, **mapping):
        self.__dict__["_store"] = types.SimpleNamespace(_mapping=mapping)

    def __getattr__(self, name):
        return self.__dict__["_store"]._mapping[name]


class HeldOut(HooksCase):
    def setUp(self):
        super().setUp()
        self.net = nn.Linear(5, CLASSES)
        self.x, self.y = torch.randn(ROWS, 5), torch.randint(CLASSES, (ROWS,))

    def said(self, loss):
        loss.backward()
        return said("loss.counts_held_out")

    def test_all_nodes_of_a_graph(self):
        data = Stored(x=self.x, y=self.y, **masks_of())
        self.assertEqual(self.said(F.cross_entropy(self.net(data.x), data.y)), [1.0])

    def test_the_nodes_of_the_mask(self):
        data = Stored(x=self.x, y=self.y, **masks_of())
        out, chosen = self.net(data.x), data.train_mask
        loss = F.cross_entropy(out[chosen], data.y[chosen])
        self.assertEqual(self.said(loss), [0.0])

    def test_names_of_a_function(self):
        train_mask, _, test_mask = masks_of().values()
        labels = self.y
        loss = F.nll_loss(self.net(self.x).log_softmax(1), labels)
        self.assertFalse(bool((train_mask & test_mask).any()))
        self.assertEqual(self.said(loss), [1.0])

    def test_attributes_and_entries(self):
        for kind in (dict, types.SimpleNamespace):
            graph = kind(labels=self.y, **masks_of())
            HooksCase.setUp(self)
            loss = F.cross_entropy(nn.Linear(5, CLASSES)(self.x), self.y)
            self.assertEqual(self.said(loss), [1.0])
        del graph

    def test_labels_of_several_columns(self):
        data = Stored(y=torch.rand(ROWS, 4).round(), **masks_of())
        net = nn.Linear(5, 4)
        loss = F.binary_cross_entropy_with_logits(net(self.x), data.y)
        self.assertEqual(self.said(loss), [1.0])

    def test_labels_that_are_ignored(self):
        data = Stored(y=self.y, **masks_of())
        data.y[~data.train_mask] = -100
        loss = F.cross_entropy(self.net(self.x), data.y, ignore_index=-100)
        self.assertEqual(self.said(loss), [0.0])

    def test_losses_of_each_node(self):
        data = Stored(y=self.y, **masks_of())
        each = F.cross_entropy(self.net(self.x), data.y, reduction="none")
        self.assertEqual(self.said(each[data.train_mask].mean()), [])

    def test_one_label(self):
        data = Stored(y=self.y, **masks_of())
        found = self.said(F.cross_entropy(self.net(self.x[0]), data.y[0]))
        self.assertEqual(found, [])

    def test_other_labels(self):
        data = Stored(y=self.y, **masks_of())
        guessed = data.y.roll(1)
        self.assertEqual(self.said(F.cross_entropy(self.net(self.x), guessed)), [])

    def test_masks_that_hold_out_nothing(self):
        data = Stored(y=self.y, train_mask=torch.ones(ROWS, dtype=torch.bool))
        data._store._mapping["test_mask"] = data.train_mask
        self.assertEqual(self.said(F.cross_entropy(self.net(self.x), data.y)), [])

    def test_tables_of_their_own(self):
        train = Stored(y=self.y)
        test = Stored(y=self.y.clone(), test_mask=torch.rand(ROWS) < 0.5)
        self.assertEqual(self.said(F.cross_entropy(self.net(self.x), train.y)), [])
        del test


if __name__ == "__main__":
    unittest.main()
