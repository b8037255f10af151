"""Learning rates that are multiplied by one factor again and again until none is left.

A factor that was meant once (of a layer, of an epoch) is applied in each step: the rate
falls to a ten-thousandth within a few dozen steps, and what has it trains no more. A
schedule that decays by a little in each step takes hundreds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from _traincheck.hyper_parameters import number_of
from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from typing import Any

    import torch

# Name of the scalar.
NAME = "schedule.rate_vanishes"

_FAST = 0.9  # a factor of a step
_TIMES = 3  # in a row
_LEFT = 1e-4  # of the largest rate


class _Rate:
    """Of one group."""

    def __init__(self) -> None:
        self.most = 0.0
        self.last = 0.0
        self.factor = 1.0
        self.times = 0

    def look(self, rate: float) -> bool | None:
        """Has it vanished? None: it does not fall."""
        factor = rate / self.last if self.last > 0 else 1.0
        again = 0 < factor < _FAST and math.isclose(factor, self.factor, rel_tol=1e-3)
        self.times = self.times + 1 if again else 1
        self.factor, self.last, self.most = factor, rate, max(self.most, rate)
        if factor >= 1:
            return None
        return self.times >= _TIMES and rate <= _LEFT * self.most


class VanishingRates:
    def __init__(self) -> None:
        self._rates: WeakIdentityMap[torch.optim.Optimizer, list[_Rate]]
        self._rates = WeakIdentityMap()
        # Rates that a scheduler has set last, of the first and the last group.
        self._scheduled: WeakIdentityMap[Any, list[float | None]] = WeakIdentityMap()
        self._has_batches = False  # has a pass that trains more than one batch?

    def pass_goes_on(self) -> None:
        """A pass over data that is trained with has another batch."""
        self._has_batches = True

    def scheduler_steps(self, optimizer: Any) -> None:
        if is_possible_key(optimizer):
            self._scheduled.set(optimizer, _rates_of_ends(optimizer))

    def replayed(self, optimizer: torch.optim.Optimizer) -> None:
        """It made steps in a graph: factors between those that are seen are of several."""
        self._rates.discard(optimizer)

    def steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: a rate has gone by one factor a step; None: none falls. Of the first and
        the last group: who counts layers begins at one end. None, too: a scheduler sets
        them, and each step may be an epoch."""
        rates = _rates_of_ends(optimizer)
        if not self._has_batches and rates == self._scheduled.get(optimizer):
            return None
        rows = self._rates.get(optimizer)
        if rows is None:
            rows = [_Rate(), _Rate()]
            self._rates.set(optimizer, rows)
        said: bool | None = None
        for row, rate in zip(rows, rates):
            gone = None if rate is None else row.look(rate)
            said = said if gone is None else bool(said) or gone
        return None if said is None else float(said)


def _rates_of_ends(optimizer: Any) -> list[float | None]:
    groups: list[Any] = optimizer.param_groups
    return [number_of(group.get("lr")) for group in groups[:1] + groups[1:][-1:]]
