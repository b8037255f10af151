"""Learning rates that are 0 because their scheduler is stepped more often than its
optimizer.

Who steps a scheduler with each micro-batch, each loss or each mini-batch of an update
reaches the end of the schedule several times too early, and trains on with a rate of 0.
A scheduler that a GradScaler's skipped step leaves ahead is ahead once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.hyper_parameters import number_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    import torch

# Name of the scalar.
NAME = "schedule.outruns"

_ENDED = 8  # steps with rates of 0, as for opt.rates_ended
_FAST = 2.0  # steps of a scheduler between two of its optimizer


class _Row:
    """One optimizer, while some rate of its was not 0."""

    def __init__(self) -> None:
        self.steps = 0  # of which it is known how often its scheduler was stepped
        self.fast = 0  # of these
        self.zero = 0  # steps in a row with rates of 0


class OutrunSchedules:
    def __init__(self) -> None:
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def replayed(self, optimizer: torch.optim.Optimizer) -> None:
        """It made a step in a graph: what lies between two that are seen is of several."""
        self._rows.discard(optimizer)

    def steps(
        self, optimizer: torch.optim.Optimizer, moved: float | None
    ) -> bool | None:
        """moved: how often its scheduler was stepped since the last step; None: not
        known. None: some rate is not 0."""
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        rates = [number_of(group.get("lr")) for group in optimizer.param_groups]
        if not rates or any(rate != 0 for rate in rates):
            row.zero = 0
            if moved is not None:
                row.steps += 1
                row.fast += moved >= _FAST
            return None
        row.zero += 1
        if row.zero < _ENDED or row.steps == 0:
            return None
        return 2 * row.fast >= row.steps
