"""Checkpoints that hold the state of an optimizer which has never stepped.

    optimizer = Adam(model.parameters())
    fit(model, optimizer)      # makes another one, with the same options, and steps it
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

The saved state is empty: a resume begins without moments. An optimizer of the same class
with the same options for the same parameters has stepped in its place, and nobody asks
for the state of that one. Whoever saves before the training begins steps with the saved
optimizer next. Other options are another phase's. L-BFGS is made anew for each problem.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import torch

from _traincheck.file_entries import entries_of
from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.stateless_resumes import has_moments, is_of_optimizer

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.awake import Awake
    from _traincheck.step_lines import StepLines

# Name of the scalar.
NAME = "opt.saves_unstepped"

_STEPS = 3  # of the one in its place, at least
_OPTIMIZERS = 64  # among which its like is looked for
_PLAIN = frozenset((bool, float, int, str, tuple, type(None)))


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0  # that have begun; counted as far as they are needed
        self.likes: list[_Row] = []  # that had not stepped as it began to
        self.replaced = False  # has another one stepped in its place?
        self.other_asked = False  # for its state
        self.asked = False  # for its own, which was empty
        self.saved = False

    def is_wrong(self) -> bool:
        return self.saved and self.steps == 0 and not self.other_asked


class UnsteppedStates:
    """Called while one thread trains; see signs.py."""

    def __init__(self, lines: StepLines, awake: Awake) -> None:
        self._lines = lines
        self._awake = awake
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()
        self._saved = False  # has the state of one that stepped been, since a step?
        self._empty = False  # has one that is empty been, ever?

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        if not issubclass(type(optimizer), torch.optim.LBFGS):
            self._rows.set(optimizer, _Row())
            self._awake.add(NAME)

    def gave_state(self, giver: Any, state: Any) -> None:
        if not issubclass(type(giver), torch.optim.Optimizer):
            return
        row = self._rows.get(giver)
        if row is None:
            return
        row.asked = row.replaced and row.steps == 0 and _is_empty(state)
        for like in row.likes:
            like.other_asked = True

    def saves(self, content: Any) -> None:
        """Called before torch.save writes."""
        if not self._rows.items():
            return
        states = list(filter(is_of_optimizer, entries_of(content)))
        if not states:
            return
        self._awake.add(NAME)
        if not all(map(_is_empty, states)):
            self._saved = True
            return
        counts = {_count(state["param_groups"]) for state in states}
        for optimizer, row in self._rows.items():
            if row.asked and _count(optimizer.param_groups) in counts:
                row.saved = self._empty = True
                self._lines.here(NAME)

    def steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """Called as its step begins. 1: so it is; 0: the state of one that has stepped
        was saved."""
        row = self._rows.get(optimizer)
        if row is not None and row.steps <= _STEPS:
            if row.steps == 0:
                row.likes = self._likes_of(optimizer)
            elif row.steps == _STEPS and row.likes and has_moments(optimizer):
                for like in row.likes:
                    like.replaced = True
            row.steps += 1
            if row.steps > _STEPS:
                self._rest()
        if self._empty and any(one.is_wrong() for one in self._rows.values()):
            return 1.0
        if not self._saved:
            return None
        self._saved = False
        self._rest()
        return 0.0

    def _rest(self) -> None:
        if all(one.steps > _STEPS for one in self._rows.values()):
            self._awake.discard(NAME)

    def _likes_of(self, optimizer: torch.optim.Optimizer) -> list[_Row]:
        """Those that could step in its place, and have not stepped."""
        found = []
        for other, row in islice(self._rows.items(), _OPTIMIZERS):
            is_like = type(other) is type(optimizer) and other is not optimizer
            if is_like and row.steps == 0 and _options(other) == _options(optimizer):
                if _held(other) == _held(optimizer):
                    found.append(row)
        return found


def _options(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """As it was made."""
    given = optimizer.defaults.items()
    return {name: value for name, value in given if type(value) in _PLAIN}


def _held(optimizer: torch.optim.Optimizer) -> set[int]:
    return set(map(id, parameters_of(optimizer)))


def _is_empty(state: Any) -> bool:
    return is_of_optimizer(state) and not state.get("state")


def _count(groups: Any) -> int:
    """Of the parameters in them."""
    if not isinstance(groups, list):
        return 0
    own = [group for group in groups if isinstance(group, dict)]
    return sum(len(group.get("params", ())) for group in own)
