"""LambdaLRs whose function gives a rate, which is multiplied by the rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from _traincheck.hyper_parameters import number_of

if TYPE_CHECKING:
    from typing import Any

# Name of the scalar.
NAME = "schedule.rate_as_factor"

_TENTH = 0.1  # a factor that is usual, even where it is the rate


class SquaredRate:
    def __init__(self) -> None:
        # Was the greatest factor the rate itself? None: it may rise still.
        self.is_so: bool | None = None
        self._factor = 0.0  # the greatest one so far
        self._varies = False

    def stepped(self, scheduler: Any, calls: int) -> None:
        """Until its factors rise no more: a warm-up may begin with any."""
        if self.is_so is not None:
            return
        if not isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
            return
        rate = number_of(next(iter(getattr(scheduler, "base_lrs", ())), None))
        groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", None)
        now = number_of(groups[0].get("lr")) if groups else None
        if rate and now is not None:
            self._compare(rate, now / rate, calls)

    def _compare(self, rate: float, factor: float, calls: int) -> None:
        if calls == 1 or factor > self._factor * (1 + 1e-6):
            self._varies = calls > 1
            self._factor = factor
            return
        is_rate = math.isclose(self._factor, rate, rel_tol=1e-6)
        self._varies = self._varies or not math.isclose(factor, self._factor)
        # A warm-up may hold a tenth, for a rate of a tenth, and then rise.
        if self._varies or not is_rate or rate < _TENTH:
            self.is_so = is_rate and rate != 1
