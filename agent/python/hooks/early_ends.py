"""Cosines that were over before the first pass over the data was.

T_max counts what the scheduler is stepped with. Where it was given in epochs and the
scheduler is stepped with each batch, the rates go up and down every few batches. A cosine
that was over at the end of a pass, or a little before, may have been laid out for it, and
the training goes on for longer: that is said of it at once. One that ended well before is
said to be wrong once it has gone down, up and down again. Milestones that are passed like
this leave a small rate to the rest of the training, and steps of a few batches leave none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from _traincheck.hyper_parameters import number_of

if TYPE_CHECKING:
    from typing import Any

# Names of the scalars.
NAME = "schedule.ends_in_first_pass"
MILESTONES = "schedule.milestones_in_first_pass"

_ALMOST = 0.9  # of a pass
_TIMES = 3
_TIMES_OF_MILESTONES = 4
_EPOCHS = 100  # milestones beyond count steps
_FALL = 0.1  # of the rate, or more
_SMALL, _GONE = 1.001e-3, 1.001e-6  # rates of StepLR, of the initial one
_QUARTER = 0.25  # of a pass
_PATIENCE = 256  # steps beyond its end, of a training whose passes nobody knows


class EarlyEnd:
    """Of one scheduler."""

    def __init__(self) -> None:
        # Did it end well before the first pass did? None: not known yet.
        self.early: bool | None = None
        self.batches: int | None = None  # of the last pass that trained
        self._passed = False  # has its end come?
        self._passes = 0  # that have begun
        self._set_anew = False  # has anybody else raised the rate of StepLR?

    def pass_begins(self, batches: int | None) -> None:
        """Called before a pass that may train."""
        self.batches = batches
        self._passes += 1

    def waits(self) -> bool:
        """For what stands for a pass?"""
        return self.early is None and self.batches is None

    def pass_ended(self, calls: int, end: float | None) -> None:
        """Called where a pass over the data, or what stands for one, has ended. calls:
        how often it was stepped."""
        if self.early is None and calls > 0:
            self.early = self._passed and end is not None and end < _ALMOST * calls

    def look(
        self, epoch: float, calls: int, end: float
    ) -> tuple[bool | None, bool | None]:
        """Is it beyond its end; did it end in the first pass? None: not said."""
        if epoch <= end:
            return False, False
        if self.early is None and not self._passed and self._may_be_right(end):
            self.early = False
        if calls <= end:  # it goes on from a file
            self.early = bool(self.early)
        self._passed = True
        if self.waits() and calls > end + _PATIENCE:
            self.early = False
        is_sure = calls > _TIMES * end
        if self.early is None and self.batches is not None and is_sure:
            self.early = True
        if self.early is False:
            return True, None
        return None, True if self.early and is_sure else None

    def _may_be_right(self, end: float) -> bool:
        return self.batches is not None and end >= _ALMOST * self.batches

    def milestones_passed(self, calls: int, end: float) -> bool | None:
        """Were they passed within the first of several passes, long ago? None: not
        known."""
        if calls <= end:
            return False
        self._passed = True
        if self.early and calls > _TIMES_OF_MILESTONES * end:
            return True
        return False if self.early is False else None

    def is_gone(self, scheduler: Any, calls: int, steps: int) -> bool | None:
        """Has StepLR left nothing of the rate, by the batches? calls: how often it was
        stepped, once when it was made; steps: of its optimizer. None: it counts something
        else, or that is not known."""
        end, calls = _end_of_steps(scheduler), calls - 1
        if end is None or calls < end:
            return None if end is None else False
        left = _most_left(scheduler)
        self._set_anew = self._set_anew or left is None or left > _SMALL
        batches = self.batches
        if self._set_anew or batches is None or left is None:
            return None
        if end >= _ALMOST * batches or calls < _ALMOST * steps:
            return None
        goes_on = self._passes > 1 or calls <= _QUARTER * batches
        return True if goes_on and left <= _GONE else None


def _end_of_steps(scheduler: Any) -> float | None:
    """After how many of its steps StepLR has made the rate a thousandth, if these may be
    epochs."""
    size, gamma = number_of(scheduler.step_size), number_of(scheduler.gamma)
    if not size or size < 1 or gamma is None or not 0 < gamma < 1:
        return None
    end = size * math.ceil(math.log(1e-3) / math.log(gamma) - 1e-9)
    return end if end < _EPOCHS else None


def _most_left(scheduler: Any) -> float | None:
    """Of the initial rates. None: not known."""
    most = 0.0
    for group in scheduler.optimizer.param_groups:
        rate, first = number_of(group.get("lr")), number_of(group.get("initial_lr"))
        if rate is None or not first:
            return None
        most = max(most, rate / first)
    return most


def last_milestone(milestones: object, gamma: float | None) -> float | None:
    """Of those that may be epochs, and that make the rate much smaller."""
    if not isinstance(milestones, dict) or gamma is None:
        return None
    last = max(milestones, default=0)
    falls = gamma ** sum(milestones.values()) <= _FALL * (1 + 1e-9)
    return float(last) if falls and 0 < last < _EPOCHS else None
