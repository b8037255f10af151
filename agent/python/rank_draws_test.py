"""Ranks that draw alike, said by stores of two ranks that are one process."""

import pathlib
import sys
import unittest
import unittest.mock

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase
from _traincheck.rank_draws import RankDraws


class Ranks(HooksCase):
    def setUp(self):
        super().setUp()
        self.store = {}
        self.rank = 0
        self.ranks = [RankDraws(CORE), RankDraws(CORE)]
        patches = (
            unittest.mock.patch(
                "torch.distributed.get_rank", side_effect=lambda *_: self.rank
            ),
            unittest.mock.patch("torch.distributed.get_world_size", lambda *_: 2),
            unittest.mock.patch(
                "_traincheck.run_agreement._agree_in_start", self.store.setdefault
            ),
        )
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)
        for draws in self.ranks:
            draws.wrapped(None)

    def said(self, drawn):
        """What the second rank says at its steps. drawn: by rank and step, the seed at
        the step's forward; the same seed in a row is a step that draws nothing."""
        said = []
        for step in zip(*drawn):
            for self.rank, seed in enumerate(step):
                torch.manual_seed(seed)
                self.ranks[self.rank].forward_begins()
                said.append((self.rank, self.ranks[self.rank].optimizer_steps()))
        self.assertFalse([value for rank, value in said if rank == 0 and value])
        return [value for rank, value in said if rank == 1 and value is not None]

    def test_one_seed(self):
        self.assertEqual(self.said(([1, 2, 3, 4], [1, 2, 3, 4]))[0], 1.0)

    def test_a_seed_for_each_rank(self):
        self.assertEqual(set(self.said(([1, 2, 3, 4], [11, 12, 13, 14]))), {0.0})

    def test_nothing_is_drawn(self):
        self.assertEqual(self.said(([1, 1, 1, 1], [1, 1, 1, 1])), [])

    def test_alike_once(self):
        self.assertNotIn(1.0, self.said(([1, 2, 3, 4, 5], [1, 2, 13, 14, 15])))

    def test_not_wrapped(self):
        self.ranks = [RankDraws(CORE), RankDraws(CORE)]
        self.assertEqual(self.said(([1, 2, 3, 4], [1, 2, 3, 4])), [])


if __name__ == "__main__":
    unittest.main()
