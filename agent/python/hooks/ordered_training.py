"""Trainings that are given the same batches in the same order, epoch after epoch.

A loader that does not shuffle always puts the same samples together, those that lie
beside each other. That is right for an evaluation. Asked are loaders over data sets that
have an order of their own and more than a few batches; streams are not.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.lengths import batches_of
from _traincheck.samplers import draws_at_random

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader

# Name of the scalar of a loader.
NAME = "loader.never_shuffles"

_PASSES = 2
_LEAST = 4  # batches of a pass


class OrderedTraining:
    def __init__(self) -> None:
        # Data set -> passes that trained: some make a loader for each epoch.
        self._passes: WeakIdentityMap[Any, int] = WeakIdentityMap()
        # Number and data of the loader that is read now, which may be gone before its
        # pass ends, and: does it draw?
        self._now: tuple[int, weakref.ref[Any], bool] | None = None

    def pass_begins(self, loader: DataLoader, number: int) -> None:
        self._now = None
        data, draws = loader.dataset, draws_at_random(loader)
        if draws is None or not is_possible_key(data):
            return
        if (batches_of(loader) or 0) < _LEAST:
            return
        self._now = number, weakref.ref(data), draws

    def trained_with(self, number: int) -> float | None:
        """Called once in each pass that trains. 1: the loader does not shuffle; None:
        it cannot be asked, or is not asked now."""
        if self._now is None or self._now[0] != number:
            return None
        (_, reference, draws), self._now = self._now, None
        data = reference()
        if data is None:
            return None
        passes = (self._passes.get(data) or 0) + 1
        self._passes.set(data, passes)
        return float(not draws) if passes == _PASSES else None
