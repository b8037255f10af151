"""Warm-ups that were counted in steps and are stepped once a pass over the data.

A rate that is to rise over 500 steps rises over 500 passes: the training ends before it
has reached a tenth of what it is to be.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from _traincheck.hyper_parameters import number_of

if TYPE_CHECKING:
    from typing import Any

# Name of the scalar.
NAME = "schedule.slow_warm_up"

_RATES = 3  # that must rise in equal parts
_LEAST_STEPS = 8  # of the optimizer between two of the scheduler
_LEAST = 10  # steps of the scheduler that a warm-up takes, to be called slow


class WarmUp:
    """Of one scheduler."""

    def __init__(self) -> None:
        self._shares: list[float] = []  # of its rate, as far as it is looked at
        self._steps = 0  # of the optimizer, at the last look
        self._found: bool | None = None

    def scheduler_steps(self, scheduler: Any, calls: int, steps: int) -> None:
        """calls: of its step so far, with the constructor's; steps: those that its
        optimizer has made."""
        if calls > _RATES or calls != len(self._shares) + 1:
            return
        between, self._steps = steps - self._steps, steps
        if calls > 1 and between < _LEAST_STEPS:
            self._found, self._shares = False, [math.nan] * _RATES  # no more looks
            return
        share = _share(scheduler)
        if share is not None:
            self._shares.append(share)
            if calls == _RATES:
                self._found = _is_slow(self._shares)

    def is_slow(self) -> bool | None:
        """None: it is not known yet."""
        return self._found


def _share(scheduler: Any) -> float | None:
    """Its first group's rate as a share of the one that it is to be."""
    full = number_of(next(iter(getattr(scheduler, "base_lrs", ())), None))
    groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", None)
    rate = number_of(groups[0].get("lr")) if groups else None
    return None if not full or rate is None else rate / full


def _is_slow(shares: list[float]) -> bool:
    rises = [later - earlier for earlier, later in zip(shares, shares[1:])]
    even = math.isclose(rises[0], rises[1], rel_tol=0.01)
    return even and 0 < rises[0] <= 1 / _LEAST and shares[-1] < 1
