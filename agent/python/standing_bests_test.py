"""Best values that nobody moves, and for which states are kept."""

import io
import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, KeepCase, WATCH

INF = float("inf")


class Forgetful:
    """Never moves its best value; the names are those of this class alone."""

    def __init__(self, begin=0.0, moves=False):
        self.best_of_none = begin
        self.may_move = moves
        self.best_dice = begin
        self.best_moved = begin
        self.best_from_outside = begin
        self.best_known_score = begin

    def offer(self, model, score):
        if score > self.best_of_none:
            torch.save({"model": model.state_dict()}, io.BytesIO())

    def offer_lowest(self, model, score):
        if score < self.best_of_none:
            model.state_dict()

    def offer_sometimes(self, model, score):
        if score > self.best_dice:
            if self.may_move:
                self.best_dice = score
            model.state_dict()

    def offer_later(self, model, score):
        if score > self.best_from_outside:
            model.state_dict()

    def offer_known(self, model, score):
        if score > self.best_known_score:
            model.state_dict()

    def offer_and_move(self, model, score):
        if score > self.best_moved:
            model.state_dict()

    def epoch_ends(self, score):
        self.best_moved = max(self.best_moved, score)


class Standing(KeepCase):
    KEPT = "opt.best_stays"
    SCORES = (0.3, 0.5, 0.4, 0.6, 0.7)

    def said_of(self, offer, scores=SCORES, between=lambda score: None):
        CORE.log.clear()
        WATCH.kept_bests._places.clear()
        WATCH.kept_bests.standing._seen.clear()
        for score in scores:
            offer(self.model, score)
            between(score)
            self.step()
        return self.said()

    def test_it_stays(self):
        self.assertEqual(self.said_of(Forgetful().offer), [1.0])
        self.assertEqual(self.said_of(Forgetful(-INF).offer), [1.0])
        self.assertEqual(self.said_of(Forgetful(INF).offer_lowest), [1.0])
        self.assertEqual(self.said_of(Forgetful().offer_sometimes), [1.0])

    def test_it_is_moved(self):
        offer = Forgetful(moves=True).offer_sometimes
        self.assertEqual(set(self.said_of(offer)), {0.0})
        keeper = Forgetful()
        moved = self.said_of(keeper.offer_and_move, between=keeper.epoch_ends)
        self.assertEqual(set(moved), {0.0})

    def test_it_is_moved_by_another_file(self):
        keeper = Forgetful()

        def between(score):
            vars_of = keeper.__dict__
            vars_of["best_from_outside"] = max(score, vars_of["best_from_outside"])

        self.assertEqual(self.said_of(keeper.offer_later, between=between), [])

    def test_few_keeps(self):
        self.assertEqual(self.said_of(Forgetful().offer, self.SCORES[:3]), [])
        for _ in range(5):
            Forgetful().offer(self.model, 0.5)  # without a step in between
        self.assertEqual(self.said(), [])

    def test_thresholds(self):
        self.assertEqual(self.said_of(Forgetful(0.2).offer), [])
        self.assertEqual(self.said_of(Forgetful(0.9).offer_lowest), [])
        self.assertEqual(self.said_of(Forgetful().offer_known), [])

    def test_a_variable(self):
        best_of_them = 0.0
        for score in self.SCORES:
            if best_of_them < score:
                self.model.state_dict()
            self.step()
        self.assertEqual(self.said(), [1.0])


if __name__ == "__main__":
    unittest.main()
