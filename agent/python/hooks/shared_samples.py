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

from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader

_MOST = 200_000  # indices of a part
_HIGHEST = 1 << 20  # index of one that is kept


class SharedSamples:
    def __init__(self) -> None:
        # What was read with gradients last, and steps since then.
        self._training: weakref.ref[Any] | None = None
        self._steps = 0
        # What was scored last, and: has a training taken a part of such samples?
        self._scored: tuple[weakref.ref[Any], bytes] | None = None
        self._selects = False
        # What was evaluated -> id of what it was compared with.
        self._told: WeakIdentityMap[Any, int] = WeakIdentityMap()
        self._kept: WeakIdentityMap[Any, bool] = WeakIdentityMap()  # as scored

    def begins(self, loader: DataLoader) -> bool | None:
        """Called when a pass begins. True: it shares some of its samples with the
        training, and not all; None: that is no question here, or was answered."""
        data = loader.dataset
        if not isinstance(data, Subset):
            return None
        if torch.is_grad_enabled():
            self._takes_from_scored(data)
            self._training, self._steps = weakref.ref(data), 0
            return None
        self._keep_scored(data)
        training = self._training() if self._training is not None else None
        if training is None or training is data or self._steps == 0:
            return None
        if self._told.get(data) == id(training):
            return None
        self._told.set(data, id(training))
        found = _overlap(training, data)
        return None if self._selects else found

    def _keep_scored(self, data: Any) -> None:
        """Once for each data set."""
        if self._kept.get(data) or self._selects:
            return
        self._kept.set(data, True)
        samples = _samples(data)
        self._scored = None
        if samples is None or not is_possible_key(samples[0]):
            return
        if samples[1] and 0 <= min(samples[1]) and max(samples[1]) < _HIGHEST:
            self._scored = weakref.ref(samples[0]), _bits(samples[1])

    def _takes_from_scored(self, data: Any) -> None:
        """A program that scores candidates and trains with a part of them evaluates
        nothing by it."""
        if self._scored is None:
            return
        (whole, bits), self._scored = self._scored, None
        samples = _samples(data)
        if samples is None or not samples[1] or samples[0] is not whole():
            return
        inside = all(_has(bits, index) for index in samples[1])
        self._selects = inside and len(samples[1]) < sum(map(_count, bits))

    def optimizer_steps(self) -> None:
        self._steps += 1


def _bits(indices: set[int]) -> bytes:
    """One for each index, in order."""
    bits = bytearray(max(indices) // 8 + 1)
    for index in indices:
        bits[index // 8] |= 1 << index % 8
    return bytes(bits)


def _has(bits: bytes, index: int) -> bool:
    return 0 <= index < 8 * len(bits) and bool(bits[index // 8] >> index % 8 & 1)


def _count(bits: int) -> int:
    return bin(bits).count("1")


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
