"""Weights that are kept as the best: a copy, or the model's own?"""

import copy
import io
import pathlib
import sys
import unittest
from collections import OrderedDict

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, KeepCase, WATCH


class Keeper:
    """What the classes below share."""

    def __init__(self, model):
        self.model = model
        self.best_loss = float("inf")
        self.best_weights = None

    def end(self):
        self.model.load_state_dict(self.best_weights)


class ByReference(Keeper):
    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            self.best_weights = self.model.state_dict()


class InAMethod(Keeper):
    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            self.keep()

    def keep(self):
        self.best_weights = self.model.state_dict()


class Other(Keeper):
    """Another dictionary, of the same tensors."""

    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            self.best_weights = OrderedDict(
                {k: v.detach().cpu() for k, v in self.model.state_dict().items()}
            )


class ByCopy(Keeper):
    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            self.best_weights = copy.deepcopy(self.model.state_dict())


class ByClones(Keeper):
    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            self.best_weights = {
                k: v.detach().clone() for k, v in self.model.state_dict().items()
            }


class KeptToLookAt:
    """Nobody puts them back; another class has an attribute of this name."""

    def __init__(self, model):
        self.model = model
        self.best_loss = float("inf")

    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            self.best_weights = self.model.state_dict()


class CopiedAtOnce(Keeper):
    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss, self.best_weights = loss, self.model.state_dict()
            self.best_weights = copy.deepcopy(self.best_weights)


class MayCopy(Keeper):
    """By a setting."""

    def __init__(self, model, copies=False):
        super().__init__(model)
        self.copies = copies


class HandedOn(MayCopy):
    """By a name of its own, as itself or as a copy."""

    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            state = self.model.state_dict()
            self.best_weights = copy.deepcopy(state) if self.copies else state


class CopiedIf(MayCopy):
    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            self.best_weights = self.model.state_dict()
            if self.copies:
                self.best_weights = copy.deepcopy(self.best_weights)


class CopiedByItsName(Keeper):
    def evaluated(self, loss):
        if loss < self.best_loss:
            state = self.model.state_dict()
            state = {k: v.clone() for k, v in state.items()}
            self.best_loss, self.best_weights = loss, None
            self.best_weights = state


class WithItsEpoch(MayCopy):
    """In a dictionary that has other entries."""

    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            state = self.model.state_dict().copy()
            if self.copies:
                state = {k: v.clone() for k, v in state.items()}
            self.kept = {"epoch": 1, "model": state}

    def end(self):
        self.model.load_state_dict(self.kept["model"])


class SavedAtOnce:
    """To a file; what is put back comes from there."""

    def __init__(self, model):
        self.model = model
        self.best_loss = float("inf")
        self.file = io.BytesIO()

    def evaluated(self, loss):
        if loss < self.best_loss:
            self.best_loss = loss
            self.best_file = {"model": self.model.state_dict(), "loss": loss}
            torch.save(self.best_file, self.file)

    def end(self):
        self.model.load_state_dict(torch.load(self.file)["model"])


class SharedBests(KeepCase):
    KEPT = "opt.best_is_shared"
    AT = f"{KEPT}.site"

    def evaluated_by(self, keeper, name=KEPT):
        WATCH.shared_bests._places.clear()
        CORE.log.clear()
        keeper.evaluated(0.5)
        return self.said(name)

    def test_weights_of_the_model_itself(self):
        for kind in (ByReference, InAMethod, Other):
            self.assertEqual(self.evaluated_by(kind(self.model)), [1.0], kind)
            self.assertEqual(len(self.evaluated_by(kind(self.model), self.AT)), 1)

    def test_copies(self):
        for kind in (ByCopy, ByClones, CopiedAtOnce):
            self.assertEqual(self.evaluated_by(kind(self.model)), [0.0], kind)
            self.assertEqual(self.evaluated_by(kind(self.model), self.AT), [])

    def test_a_name_of_its_own(self):
        for kind, copies, expected in (
            (HandedOn, False, [1.0]),
            (HandedOn, True, [0.0]),
            (CopiedIf, False, [1.0]),
            (CopiedIf, True, []),
            (WithItsEpoch, False, [1.0]),
            (WithItsEpoch, True, []),
        ):
            keeper = kind(self.model, copies)
            self.assertEqual(self.evaluated_by(keeper), expected, (kind, copies))

    def test_what_is_used_at_once(self):
        for kind in (SavedAtOnce, KeptToLookAt, CopiedByItsName):
            self.assertEqual(self.evaluated_by(kind(self.model)), [], kind)

    def test_another_model_is_trained_next(self):
        keeper = ByReference(nn.Linear(3, 2))
        self.assertEqual(self.evaluated_by(keeper), [])

    def test_before_the_first_step(self):
        WATCH.reset()
        self.assertEqual(self.evaluated_by(ByReference(self.model)), [])

    def test_a_function_returns_them(self):
        def trained(model, loss, best=1.0):
            best_weights = None
            if loss < best:
                best_weights = model.state_dict()
            self.step()
            return best_weights

        CORE.log.clear()
        trained(self.model, 0.5)
        self.assertEqual(self.said(), [1.0])

    def test_what_is_saved_after_the_loop(self):
        def trained(model, losses, best=1.0):
            for loss in losses:
                if loss < best:
                    best, best_weights = loss, model.state_dict()
                self.step()
            torch.save({"model": best_weights}, io.BytesIO())

        def saved_in_the_loop(model, losses, best=1.0):
            for loss in losses:
                if loss < best:
                    best, best_weights = loss, model.state_dict()
                torch.save({"model": best_weights}, io.BytesIO())
                self.step()

        for function, expected in ((trained, [1.0]), (saved_in_the_loop, [])):
            WATCH.shared_bests._places.clear()
            CORE.log.clear()
            function(self.model, [0.5, 0.7])
            self.assertEqual(self.said(), expected)


if __name__ == "__main__":
    unittest.main()
