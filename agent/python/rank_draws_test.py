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
        self.initialized = True
        self.ranks = [RankDraws(CORE), RankDraws(CORE)]
        patches = (
            unittest.mock.patch(
                "torch.distributed.get_rank", side_effect=lambda *_: self.rank
            ),
            unittest.mock.patch("torch.distributed.get_world_size", lambda *_: 2),
            unittest.mock.patch(
                "torch.distributed.is_initialized", lambda: self.initialized
            ),
            unittest.mock.patch(
                "_traincheck.run_agreement._agree_in_start", self.store.setdefault
            ),
        )
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)
        for draws in self.ranks:
            draws.wrapped(None)

    def said(self, drawn, later=False):
        """What the second rank says at its steps. drawn: by rank and step, the seed of
        what is drawn once the batch is there; None: nothing. later: within the forward.
        """
        said = []
        for step in zip(*drawn):
            for self.rank, seed in enumerate(step):
                torch.manual_seed(0)
                draws = self.ranks[self.rank]
                draws.batch_fetched()
                if later:
                    draws.forward_begins()
                if seed is not None:
                    torch.manual_seed(seed)
                draws.forward_begins()
                said.append((self.rank, draws.optimizer_steps()))
        self.assertFalse([value for rank, value in said if rank == 0 and value])
        return [value for rank, value in said if rank == 1 and value is not None]

    def test_one_seed(self):
        self.assertEqual(self.said(([1, 2, 3, 4], [1, 2, 3, 4]))[0], 1.0)

    def test_a_seed_for_each_rank(self):
        self.assertEqual(set(self.said(([1, 2, 3, 4], [11, 12, 13, 14]))), {0.0})

    def test_nothing_is_drawn(self):
        self.assertEqual(self.said(([None] * 4, [None] * 4)), [])

    def test_the_group_is_gone(self):
        self.initialized = False
        self.assertEqual(self.said(([1, 2, 3, 4], [1, 2, 3, 4])), [])

    def test_dropout_within_the_model(self):
        self.assertEqual(self.said(([1, 2, 3, 4], [1, 2, 3, 4]), later=True), [])

    def test_alike_once(self):
        self.assertNotIn(1.0, self.said(([1, 2, 3, 4], [1, 12, 13, 14])))

    def test_not_wrapped(self):
        self.ranks = [RankDraws(CORE), RankDraws(CORE)]
        self.assertEqual(self.said(([1, 2, 3, 4], [1, 2, 3, 4])), [])


if __name__ == "__main__":
    unittest.main()
