"""Evaluations of samples that are drawn anew each time.

Parts of one data set share its transform: what was meant to vary the training's samples
varies those of the validation, too. It is told by the random numbers that a fetch takes.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import torch

from _traincheck.generators import drawn_state
from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.subsets import whole_of

if TYPE_CHECKING:
    from typing import Any

# Name of the scalar of a loader.
NAME = "loader.draws_in_evaluation"
_FETCHES = 8  # of a data set that are looked at, without gradients


class RandomEvaluations:
    def __init__(self) -> None:
        # Data sets, of which parts may be read: with gradients, and how often without.
        self._trained: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        self._looked: WeakIdentityMap[Any, int] = WeakIdentityMap()
        self._before: tuple[Any, ...] | None = None
        self._drew: bool | None = None  # in the fetch before

    def fetch_begins(self, data: Any) -> None:
        self._before = self._drew = None
        whole = whole_of(data)
        if not is_possible_key(whole):
            return
        if torch.is_grad_enabled():
            if self._trained.get(whole) is None:
                self._trained.set(whole, True)
            return
        looked = self._looked.get(whole) or 0
        if not self._trained.get(whole) or looked >= _FETCHES:
            return
        self._looked.set(whole, looked + 1)
        self._before = _states()

    def fetch_ended(self) -> None:
        if self._before is not None:
            self._drew = self._before != _states()
            self._before = None

    def fetched(self) -> float | None:
        """Called for every batch. 1: it was read without gradients, with random
        numbers; None: it is no evaluation of what is trained with, or in a worker."""
        drew, self._drew = self._drew, None
        return None if drew is None else float(drew)


def _states() -> tuple[Any, ...]:
    numpy_random = sys.modules.get("numpy.random")
    drawn: Any = None
    if numpy_random is not None:
        state = numpy_random.get_state()
        drawn = (state[1].tobytes(), *state[2:])
    return random.getstate(), drawn, drawn_state()
