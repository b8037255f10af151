"""Counters of worse evaluations that better ones do not set back."""

import copy
import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, KeepCase, WATCH, said

INF = float("inf")


class Base:
    def __init__(self, patience=5):
        self.patience = patience
        self.best = INF
        self.weights = None


class NeverSet(Base):
    def __init__(self, patience=5, resets=False):
        super().__init__(patience)
        self.never_set, self.resets = 0, resets

    def __call__(self, loss, model):
        if loss < self.best:
            self.best = loss
            self.weights = copy.deepcopy(model.state_dict())
            if self.resets:
                self.never_set = 0
        else:
            self.never_set += 1
        return self.never_set >= self.patience


class SetWithBest(Base):
    def __init__(self, patience=5):
        super().__init__(patience)
        self.set_with_best = 0

    def __call__(self, loss, model):
        if loss >= self.best:
            self.set_with_best += 1
        else:
            self.best, self.set_with_best = loss, 0
            self.weights = copy.deepcopy(model.state_dict())
        return self.set_with_best >= self.patience


class SetElsewhere(Base):
    """By its own method, or once patience is over."""

    def __init__(self, patience=5):
        super().__init__(patience)
        self.set_elsewhere = self.set_at_end = 0

    def begin(self):
        self.set_elsewhere = 0

    def __call__(self, loss, model):
        if loss < self.best:
            self.best = loss
            self.weights = copy.deepcopy(model.state_dict())
            self.begin()
        else:
            self.set_elsewhere += 1
            self.set_at_end += 1
            if self.set_at_end == self.patience:
                self.set_at_end = 0
        return self.set_elsewhere >= self.patience


class SetFromOutside(Base):
    def __init__(self, patience=5):
        super().__init__(patience)
        self.set_outside = 0

    def __call__(self, loss, model):
        if loss < self.best:
            self.best = loss
            self.weights = copy.deepcopy(model.state_dict())
        else:
            self.set_outside += 1
        return self.set_outside >= self.patience


class NoPatience(Base):
    """All worse evaluations are counted on purpose, and there is a budget of them."""

    def __init__(self, patience=5):
        super().__init__(patience)
        self.worse_ones, self.most = 0, 9

    def __call__(self, loss, model):
        if loss < self.best:
            self.best = loss
            self.weights = copy.deepcopy(model.state_dict())
        else:
            self.worse_ones += 1
        return self.worse_ones >= self.most


class Patience(KeepCase):
    KEPT = "opt.patience_not_set_back"
    LOSSES = (0.9, 0.88, 0.95, 0.8, 0.85, 0.7, 0.6, 0.5)

    def said(self):
        self.step()
        found = set(said(self.KEPT))
        CORE.log.clear()
        return {one for one in found if one == one}

    def said_of(self, stop, losses=LOSSES, between=lambda stop: None):
        for loss in losses:
            stop(loss, self.model)
            between(stop)
            self.step()
        return self.said()

    def test_it_goes_on_counting(self):
        self.assertEqual(self.said_of(NeverSet()), {1.0})

    def test_it_begins_anew(self):
        self.assertEqual(self.said_of(NeverSet(resets=True)), {0.0})
        self.assertEqual(self.said_of(SetWithBest()), {0.0})

    def test_what_is_set_elsewhere(self):
        self.assertEqual(self.said_of(SetElsewhere()), set())

        def begin(stop):
            if stop.best == WATCH.last_loss:
                stop.__dict__["set_outside"] = 0

        stop = SetFromOutside()
        for loss in self.LOSSES:
            WATCH.last_loss = loss
            stop(loss, self.model)
            begin(stop)
            self.step()
        self.assertEqual(self.said(), set())

    def test_each_second_one_is_worse(self):
        losses = (0.9, 0.95, 0.8, 0.85, 0.7, 0.75, 0.6, 0.65, 0.5, 0.55, 0.4)
        stop = SetFromOutside()
        for loss in losses:
            better = loss < stop.best
            stop(loss, self.model)
            if better:
                stop.__dict__["set_outside"] = 0
            self.step()
        self.assertEqual(self.said(), set())

    def test_nothing_to_set_back(self):
        self.assertEqual(
            self.said_of(NeverSet(), (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)), set()
        )
        self.assertEqual(self.said_of(NoPatience()), set())

    def test_a_variable(self):
        best, bad, patience = INF, 0, 5
        for loss in self.LOSSES:
            if loss < best:
                best = loss
                self.model.state_dict()
            else:
                bad += 1
            if bad > patience:
                break
            self.step()
        self.assertEqual(self.said(), {1.0})

    def test_a_variable_that_begins_anew(self):
        best, bad, patience = INF, 0, 5
        for loss in self.LOSSES:
            if loss < best:
                best, bad = loss, 0
                self.model.state_dict()
            else:
                bad += 1
            if bad > patience:
                break
            self.step()
        self.assertEqual(self.said(), {0.0})

    def test_a_variable_of_each_fold(self):
        patience = 5
        for _ in range(3):
            best, bad = INF, 0
            for loss in self.LOSSES[:1]:
                if loss < best:
                    best = loss
                    self.model.state_dict()
                else:
                    bad += 1
                if bad > patience:
                    break
                self.step()
        self.assertEqual(self.said(), set())


if __name__ == "__main__":
    unittest.main()
