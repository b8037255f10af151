"""Samples that are trained with and evaluated on.

Two parts of a data set (Subset, random_split) that were drawn apart from each other
overlap. A training that is evaluated on all it was trained with is left alone: that
is how its training accuracy is measured.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Subset

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader

_MOST = 200_000  # indices of a part


class SharedSamples:
    def __init__(self) -> None:
        # What was read with gradients last, and steps since then.
        self._training: weakref.ref[Any] | None = None
        self._steps = 0
        # What was evaluated -> id of what it was compared with.
        self._told: WeakIdentityMap[Any, int] = WeakIdentityMap()

    def begins(self, loader: DataLoader) -> bool | None:
        """Called when a pass begins. True: it shares some of its samples with the
        training, and not all; None: that is no question here, or was answered."""
        data = loader.dataset
        if not isinstance(data, Subset):
            return None
        if torch.is_grad_enabled():
            self._training, self._steps = weakref.ref(data), 0
            return None
        training = self._training() if self._training is not None else None
        if training is None or training is data or self._steps == 0:
            return None
        if self._told.get(data) == id(training):
            return None
        self._told.set(data, id(training))
        return _overlap(training, data)

    def optimizer_steps(self) -> None:
        self._steps += 1


def _overlap(trained: Any, evaluated: Any) -> bool | None:
    first, second = _samples(trained), _samples(evaluated)
    if first is None or second is None or first[0] is not second[0]:
        return None
    common = len(first[1] & second[1])
    return 0 < common < min(len(first[1]), len(second[1]))


def _samples(data: Any) -> tuple[Any, set[int]] | None:
    """(what it is a part of, indices in that); None: they cannot be read."""
    indices: Any = None
    while type(data) is Subset:
        if len(data.indices) > _MOST:
            return None
        own = [int(index) for index in data.indices]
        indices = own if indices is None else [own[index] for index in indices]
        data = data.dataset
    return None if indices is None else (data, set(indices))
