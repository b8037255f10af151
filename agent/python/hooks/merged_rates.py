"""Learning rates of groups that were made to differ, and that something makes equal.

OneCycleLR(max_lr=0.1) and schedules by hand set one rate for all groups; those that
the optimizer was made with are gone before its first step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.hyper_parameters import rates_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    import torch

# A search for a rate gives all groups one, too, and a higher one in each step.
_STEPS = 8  # whose rate did not rise
_LEAST = 1.5  # times another: smaller differences may be rounding


class _Row:
    """One optimizer whose groups were made with different rates."""

    def __init__(self) -> None:
        self.apart = False  # were they different at some step?
        self.rate = 0.0  # of all groups
        self.steps = 0  # in a row, in which it did not rise


class MergedRates:
    def __init__(self) -> None:
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        rates = rates_of(optimizer.param_groups)
        if rates and min(rates) > 0 and max(rates) > _LEAST * min(rates):
            self._rows.set(optimizer, _Row())

    def looks_at(self, optimizer: torch.optim.Optimizer) -> bool:
        return self._rows.get(optimizer) is not None

    def steps(
        self, optimizer: torch.optim.Optimizer, in_one_cycle: bool
    ) -> float | None:
        """1: from its first step on all have had one; None: they were made equal.

        in_one_cycle: OneCycleLR sets them, in each step anew.
        """
        row = self._rows.get(optimizer)
        if row is None:
            return None
        rates = rates_of(optimizer.param_groups)
        row.apart = row.apart or len(set(rates)) != 1
        if row.apart or rates[0] == 0:
            return 0.0 if row.apart else None
        goes_on = in_one_cycle or rates[0] <= row.rate
        row.steps = row.steps + 1 if goes_on else 1
        row.rate = rates[0]
        return 1.0 if row.steps >= _STEPS else None
