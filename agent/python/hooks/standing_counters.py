"""Optimizers of the user's own that go on while their counter of steps stands still.

Adam divides its moments by what they lack in the first steps, 1 - beta ** step. With a
counter that nobody moves each step is corrected as the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of
from _traincheck.holds import first_trained
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.old_gradients import is_of_torch

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.device_values import DeviceValues

# Name of the scalar.
NAME = "opt.counter_stands"

_COUNTER = "step"
_FEW = 16  # elements of a moment that are compared


class _Seen:
    """After one step: the counter, and the beginning of a moment."""

    def __init__(self, counter: float, moment: torch.Tensor) -> None:
        self.counter = counter
        self.moment = moment
        self.counts = False  # has the counter ever moved?


class StandingCounters:
    """Called while one thread trains; see signs.py."""

    def __init__(self, values: DeviceValues) -> None:
        self._values = values
        self._seen: WeakIdentityMap[torch.optim.Optimizer, _Seen] = WeakIdentityMap()

    def stepped(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: its moments have moved and its counter never has; None: not known."""
        if is_of_torch(optimizer):  # its tests cover them
            return None
        now = self._look(optimizer)
        before = self._seen.get(optimizer)
        if now is None:
            return None
        self._seen.set(optimizer, now)
        if before is None or before.moment.shape != now.moment.shape:
            return None
        now.counts = before.counts or before.counter != now.counter
        if now.counts:  # it may count something else than steps
            return 0.0
        # A step that is left out moves nothing.
        return None if torch.equal(before.moment, now.moment) else 1.0

    def _look(self, optimizer: torch.optim.Optimizer) -> _Seen | None:
        state = getattr(optimizer, "state", None)
        first = first_trained(optimizer)
        entry = state.get(first) if isinstance(state, dict) else None
        if first is None or not isinstance(entry, dict):
            return None
        counter = self._number(entry.get(_COUNTER))
        moments = (one for one in list(entry.values()) if self._is_moment(one, first))
        moment = next(moments, None)
        if counter is None or moment is None:
            return None
        return _Seen(counter, first_of(moment, _FEW).clone())

    def _number(self, counter: Any) -> float | None:
        if type(counter) in (int, float):
            return float(counter)
        if type(counter) is not torch.Tensor or counter.numel() != 1:
            return None
        return float(counter.item()) if self._values.is_here(counter) else None

    def _is_moment(self, value: Any, parameter: torch.Tensor) -> bool:
        return (
            type(value) is torch.Tensor
            and value.shape == parameter.shape
            and value.is_floating_point()
            and self._values.is_here(value)
        )
