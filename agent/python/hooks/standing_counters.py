"""Optimizers of the user's own that go on while their counter of steps stands still.

Adam divides its moments by what they lack in the first steps, 1 - beta ** step. With a
counter that nobody moves each step is corrected as the first one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of
from _traincheck.holds import first_trained
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at_two
from _traincheck.old_gradients import is_of_torch

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.device_values import DeviceValues

# Name of the scalar.
NAME = "opt.counter_stands"

_COUNTER = "step"
_FEW = 16  # elements of a moment that are compared


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self.counter: float | None = None  # at the last look
        self.moment: torch.Tensor | None = None  # its beginning, then
        self.counts = False  # has the counter ever moved?
        self.said: float | None = None

    def look(self, counter: float | None, values: list[torch.Tensor]) -> None:
        """values: of a moment and, where `counter` is None, of the counter."""
        counter = float(values[1].item()) if counter is None else counter
        before, self.moment = self.moment, values[0].clone()
        if before is not None and before.shape == self.moment.shape:
            self.counts = self.counts or counter != self.counter
            if self.counts:  # it may count something else than steps
                self.said = 0.0
            elif not torch.equal(before, self.moment):
                self.said = 1.0  # a step that is left out moves nothing
        self.counter = counter


class StandingCounters:
    """Called while one thread trains; see signs.py."""

    def __init__(self, values: DeviceValues) -> None:
        self._values = values
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def stepped(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: its moments have moved and its counter never has; None: not known, or not
        yet."""
        if is_of_torch(optimizer):  # its tests cover them
            return None
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        number, row.steps = row.steps, row.steps + 1
        self._look(optimizer, row, number)
        said, row.said = row.said, None
        return said

    def _look(self, optimizer: torch.optim.Optimizer, row: _Row, number: int) -> None:
        state = getattr(optimizer, "state", None)
        first = first_trained(optimizer)
        entry = state.get(first) if isinstance(state, dict) else None
        if first is None or not isinstance(entry, dict):
            return
        counter: Any = entry.get(_COUNTER)
        moments = (one for one in list(entry.values()) if self._is_moment(one, first))
        moment = next(moments, None)
        is_number = type(counter) in (int, float)
        if moment is None or not (is_number or self._is_counter(counter)):
            return
        read = [first_of(moment, _FEW)]
        if not is_number:
            read.append(counter.detach())
        # A device is not asked in each step.
        if all(map(self._values.is_here, read)) or looks_at_two(number):
            known = float(counter) if is_number else None
            self._values.read(read, functools.partial(row.look, known))

    def _is_counter(self, value: Any) -> bool:
        is_one = type(value) is torch.Tensor and value.numel() == 1
        return is_one and not value.is_complex() and self._values.reads(value)

    def _is_moment(self, value: Any, parameter: torch.Tensor) -> bool:
        return (
            type(value) is torch.Tensor
            and value.shape == parameter.shape
            and value.is_floating_point()
            and self._values.reads(value)
        )
