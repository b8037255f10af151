"""Buffers that a recomputation updates again by putting a new tensor in their place.

self.load = self.load + count leaves the version of the old tensor as it was. That a
tensor was replaced says nothing: a table, or what was last seen, is made anew by each
forward, and is the same the second time, or belongs to another call of the layer. What
is counted or averaged goes on in the recomputation on the way that it took in the
forward: all elements by as much (a sum), or by one share of it (a moving average).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of

if TYPE_CHECKING:
    from _traincheck.device_values import DeviceValues

    Ids = dict[int, int]  # variable -> id of its tensor

_KINDS = (torch.float64, torch.float32, torch.int64, torch.int32)
_MOST = 64  # buffers that are read
_FIRST = 16  # elements of each
_LEAST_SHARE = 0.05
_SAME = 0.01  # shares that are one, relative to the larger
_NOISE = 1e-5  # of a movement, relative to the values


class _Course:
    """Values of one buffer, around the backward of a number."""

    __slots__ = ("number", "before", "after", "share")

    def __init__(self) -> None:
        self.number = -1
        self.before: list[float] = []
        self.after: list[float] | None = None
        self.share: float | None = None  # of the movement before it


class ReplacedBuffers:
    def __init__(self, values: DeviceValues) -> None:
        self._values = values
        self._courses: dict[int, _Course] = {}  # by variable
        self._go_on: set[int] = set()  # of them, those that are updated again

    def backward_begins(self, number: int, buffers: dict[int, torch.Tensor]) -> None:
        """number: of backwards that follow a region, also of those that are left out."""
        for gone in self._courses.keys() - buffers.keys():
            del self._courses[gone]
            self._go_on.discard(gone)
        self._read(functools.partial(self._take_before, number), buffers)

    def backward_ended(
        self, number: int, buffers: dict[int, torch.Tensor], before: Ids
    ) -> bool:
        """Has it updated one again? before: all that were there when it began."""
        replaced = {
            variable
            for variable, tensor in buffers.items()
            if before.get(variable, id(tensor)) != id(tensor)
        }
        self._read(functools.partial(self._take_after, number), buffers)
        for variable in replaced:
            if len(self._courses) < _MOST:
                self._courses.setdefault(variable, _Course())
        return not replaced.isdisjoint(self._go_on)

    def _read(
        self,
        take: functools.partial[None],
        buffers: dict[int, torch.Tensor],
    ) -> None:
        if not self._courses:
            return
        rows = [
            (variable, first_of(buffers[variable], _FIRST))
            for variable in self._courses
            if variable in buffers and self._values.reads(buffers[variable])
        ]
        if rows:
            variables, tensors = zip(*rows)
            self._values.read(tensors, functools.partial(take, variables))

    def _take_before(
        self, number: int, variables: tuple[int, ...], values: list[torch.Tensor]
    ) -> None:
        for variable, value in zip(variables, values):
            course = self._courses.get(variable)
            if course is None:
                continue
            if course.number != number - 1:
                course.after = course.share = None
            course.number = number
            course.before = _numbers(value)

    def _take_after(
        self, number: int, variables: tuple[int, ...], values: list[torch.Tensor]
    ) -> None:
        for variable, value in zip(variables, values):
            course = self._courses.get(variable)
            if course is None or course.number != number:
                continue
            after = _numbers(value)
            share = course.after and _share(course.after, course.before, after)
            if share and course.share and _is_one(share, course.share):
                self._go_on.add(variable)
            course.after, course.share = after, share or None


def _numbers(values: torch.Tensor) -> list[float]:
    return [float(one) for one in values.tolist()] if values.dtype in _KINDS else []


def _share(
    former: list[float], before: list[float], after: list[float]
) -> float | None:
    """By what share of the movement from `former` to `before` all elements went on."""
    if not len(former) == len(before) == len(after):
        return None
    if not all(map(math.isfinite, (*former, *before, *after))):
        return None
    moves = [two - one for one, two in zip(former, before)]
    most = max((abs(move) for move in moves), default=0.0)
    if most <= _NOISE * max((abs(one) for one in before), default=0.0):
        return None
    at = max(range(len(moves)), key=lambda i: abs(moves[i]))
    share = (after[at] - before[at]) / moves[at]
    if not _LEAST_SHARE <= share <= 1 + _SAME:
        return None
    rests = (two - one - share * move for one, two, move in zip(before, after, moves))
    return share if all(abs(rest) <= _SAME * most for rest in rests) else None


def _is_one(share: float, other: float) -> bool:
    return abs(share - other) <= _SAME * max(share, other)
