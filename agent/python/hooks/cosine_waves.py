"""Cosines of LambdaLR that go on as a wave beyond their end.

Most functions give half of a cosine, and nothing keeps what they are given below 1: beyond
its end the rates rise as slowly as they fell, back to where they began. A restart jumps, and
so do most warm-ups of a new cycle; triangles turn at once.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from _traincheck.hyper_parameters import number_of

if TYPE_CHECKING:
    from typing import Any

_LOW = 0.01  # of the highest rate
_HIGHEST = 0.2  # of a step
_FALLS, _RISES = 8, 4  # steps in a row, the rises of which are compared with the falls
_HALF = 0.5  # as transformers counts the cycles of a cosine
_GROWTH = 1.001  # of the steps
_CLOSE = 1e-3  # of the highest rate


class CosineWave:
    """Of one scheduler."""

    def __init__(self) -> None:
        self._most = 0.0
        # The rates of the last steps that fell, and of those that have risen since.
        self._falls: list[float] = []
        self._count = 0
        self._rises: list[float] = []
        self._is_other = False  # another form, or cycles that are wanted
        self._said = False

    def look(self, scheduler: Any) -> bool | None:
        """Called at each step of its optimizer. Does the rate rise again? None: it has not
        fallen to almost nothing, or it is no such cosine."""
        if self._said:
            return True
        if self._is_other or not isinstance(
            scheduler, torch.optim.lr_scheduler.LambdaLR
        ):
            return None
        rate = number_of(scheduler.optimizer.param_groups[0].get("lr"))
        if rate is None:
            return None
        is_low = self._see(rate)
        self._is_other = self._is_other or (is_low and _has_cycles(scheduler))
        if self._is_other:
            return None
        if len(self._rises) >= _RISES:
            self._said = True
        return self._said if is_low or self._said else None

    def _see(self, rate: float) -> bool:
        """Has it fallen to almost nothing?"""
        last = self._falls[-1] if self._falls else 0.0
        now = self._rises[-1] if self._rises else last
        if rate == now and self._falls:
            return self._is_at_end()  # it was not stepped, or keeps its end
        if rate < now and not self._rises:
            self._count += 1
            self._falls = [*self._falls[-_FALLS:], rate]
        elif self._is_at_end():
            self._rises.append(rate)
            self._is_other = not self._mirrors()
            return True
        else:
            self._falls, self._count = [rate], 0
        self._most = max(self._most, rate)
        return self._is_at_end()

    def _is_at_end(self) -> bool:
        return self._count >= _FALLS and self._falls[-1] < _LOW * self._most

    def _mirrors(self) -> bool:
        """Are the rises those of the falls, the other way around, and do they grow?"""
        rates = [self._falls[-1], *self._rises]
        if rates[-1] - rates[-2] > _HIGHEST * self._most:
            return False
        number = len(self._rises)
        falls = self._falls[::-1]  # the last one first, which may lie beyond the end
        slack = _CLOSE * self._most
        if not falls[number - 1] - slack <= rates[-1] <= falls[number + 1] + slack:
            return False
        steps = [after - before for before, after in zip(rates, rates[1:])]
        # The first one is that around the lowest rate.
        return all(
            _GROWTH * before < after for before, after in zip(steps[1:], steps[2:])
        )


def _has_cycles(scheduler: Any) -> bool:
    """Was it made with a number of cycles that rises on purpose?"""
    given = getattr(scheduler, "lr_lambdas", None)
    first = given[0] if isinstance(given, list) and given else None
    if type(first) is not functools.partial:
        return False
    return bool(first.keywords.get("num_cycles", _HALF) != _HALF)
