"""Frozen networks of two ranks that are one process."""

import pathlib
import sys
import unittest
import unittest.mock

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, WATCH
from _traincheck.frozen_parts import FrozenParts


class Projection(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        weight = torch.randn(8, width)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("codes", torch.randn(6, width))
        self.norm = nn.BatchNorm1d(width, affine=False)

    def forward(self, x):
        return x @ self.weight


class Scale(nn.Module):
    """Fewer numbers than a network has."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4), requires_grad=False)


class Ranks(HooksCase):
    def setUp(self):
        super().setUp()
        self.store = {}
        self.rank = 0
        patches = (
            unittest.mock.patch("torch.distributed.get_rank", lambda *_: self.rank),
            unittest.mock.patch("torch.distributed.get_world_size", lambda *_: 2),
            unittest.mock.patch("torch.distributed.is_initialized", lambda: True),
            unittest.mock.patch(
                "_traincheck.run_agreement._agree_in_start", self.store.setdefault
            ),
        )
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def said(self, make, seeds=(1, 2), between=lambda rank, step, net: None, steps=6):
        """What both say at their steps. between: is called after each of them."""
        HooksCase.setUp(self)
        self.store.clear()
        said = [[], []]
        for self.rank in (0, 1):
            torch.manual_seed(seeds[self.rank])
            net, parts = make(), FrozenParts(CORE, set())
            parts.wrapped(None)
            model = WATCH.models.ensure(net)
            between(self.rank, -1, net)
            for step in range(steps):
                if getattr(net, "evaluates", 1) == 1 or step % net.evaluates == 0:
                    parts.forward_begins(model)
                said[self.rank].append(parts.optimizer_steps())
                between(self.rank, step, net)
        return [[v for v in of_one if v is not None] for of_one in said]

    def test_a_seed_for_each_rank(self):
        self.assertEqual(self.said(Projection), [[0.0], [1.0]])

    def test_one_seed(self):
        self.assertEqual(self.said(Projection, (1, 1)), [[0.0], [0.0]])

    def test_statistics_of_each_rank(self):
        def gathers(rank, step, net):
            net.norm.running_mean.fill_(rank + step)

        self.assertEqual(self.said(Projection, (1, 1), gathers), [[0.0], [0.0]])

    def test_what_is_trained_or_moves(self):
        def thaws(rank, step, net):
            net.requires_grad_(True)

        def moves(rank, step, net):
            net.weight.data.mul_(0.9)

        for between in (thaws, moves):
            self.assertEqual(self.said(Projection, between=between), [[], []])
        self.assertEqual(self.said(lambda: nn.Linear(5, 5)), [[], []])

    def test_few_numbers_and_other_sizes(self):
        self.assertEqual(self.said(Scale), [[], []])
        found = self.said(lambda: Projection(4 + self.rank))
        self.assertEqual(found, [[0.0], [0.0]])  # nothing to be like

    def test_what_only_evaluates(self):
        def judge():
            net = Projection()
            net.evaluates = 2
            return net

        self.assertEqual(self.said(judge), [[], []])

    def test_what_was_loaded(self):
        net = Projection()
        WATCH.frozen_parts.wrapped(None)
        net.load_state_dict(Projection().state_dict())
        model = WATCH.models.ensure(net)
        for _ in range(4):
            WATCH.frozen_parts.forward_begins(model)
            self.assertIsNone(WATCH.frozen_parts.optimizer_steps())


if __name__ == "__main__":
    unittest.main()
