"""Data that was split into parts, and is trained with as a whole all the same.

The parts of a random_split exist, one of them is evaluated, and the loader of the
training was given the data set that they were made of: the rows that were held out are
trained with. Who trains with everything in the end has trained with parts before.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch.utils.data import Subset

from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader
    from traincheck_core import Args

    from _traincheck.watch import Watch

# Name of the scalar of a loader.
NAME = "loader.ignores_split"
_WHOLE = 0.9  # of the data set, in parts


class _Split:
    """Parts of one data set."""

    def __init__(self) -> None:
        self.parts = 0
        self.samples = 0
        self.is_trained_with = False


class UnusedSplits:
    def __init__(self) -> None:
        self._splits: WeakIdentityMap[Any, _Split] = WeakIdentityMap()
        self._told: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        # Of the present pass. A loader may be gone before its pass ends.
        self._data: weakref.ref[Any] | None = None

    def made(self, part: Subset[Any]) -> None:
        size = _size(part.indices)
        if size is None or not is_possible_key(part.dataset):
            return
        split = self._splits.get(part.dataset) or _Split()
        split.parts += 1
        split.samples += size
        self._splits.set(part.dataset, split)

    def pass_begins(self, loader: DataLoader[Any]) -> None:
        data = loader.dataset
        self._data = weakref.ref(data) if is_possible_key(data) else None

    def trained_with(self) -> float | None:
        """Called when the present pass trains. 1: it reads a whole whose parts are not
        trained with; None: there is no split, or that was said."""
        data: Any = self._data() if self._data is not None else None
        if data is None or self._told.get(data):
            return None
        self._told.set(data, True)
        if type(data) is Subset:
            while type(data) is Subset:
                data = data.dataset
                split = self._splits.get(data)
                if split is not None:
                    split.is_trained_with = True
            return 0.0
        split = self._splits.get(data)
        size = _size(data)
        if split is None or split.parts < 2 or size is None:
            return None
        if split.samples < _WHOLE * size:
            return None
        return float(not split.is_trained_with)


def _size(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None


def install(watch: Watch) -> None:
    def made(part: Any, args: Args, result: Any) -> None:
        watch.unused_splits.made(part)
        watch.replaced_transforms.made(part)

    observe(watch, Subset, "__init__", after=made)
