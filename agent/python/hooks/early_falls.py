"""Rates that had fallen for good before the first pass over the data was over.

Milestones and step_size count what the scheduler is stepped with. Where they were given in
epochs and the scheduler is stepped with each batch, milestones that are passed within the
first pass leave a small rate to the rest of the training, and steps of a few batches leave
none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from _traincheck.early_ends import ALMOST
from _traincheck.hyper_parameters import number_of

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.early_ends import EarlyEnd

# Name of the scalar.
NAME = "schedule.milestones_in_first_pass"

_MILESTONES = torch.optim.lr_scheduler.MultiStepLR
_STEPS = torch.optim.lr_scheduler.StepLR
_TIMES = 4
_EPOCHS = 100  # milestones and sizes beyond count steps
_FALL = 0.1  # of the rate, or more
_SMALL, _GONE = 1.001e-3, 1.001e-6  # rates of StepLR, of the initial one
_QUARTER = 0.25  # of a pass
_LARGE = 0.5  # factor of one fall, or less: not of a decay by a little each step


class EarlyFall:
    """Of one scheduler."""

    def __init__(self, end: EarlyEnd) -> None:
        self._end = end
        self._set_anew = False  # has anybody else raised the rate of StepLR?

    def look(self, scheduler: Any, calls: int, steps: int) -> bool | None:
        """Did it lower the rate so much, counting batches for epochs? calls: how often
        it was stepped by others than itself; steps: of its optimizer. None: it has
        neither milestones nor a step_size, or it is not known."""
        if isinstance(scheduler, _MILESTONES):
            return self._are_passed(scheduler, calls)
        if isinstance(scheduler, _STEPS):
            return self._is_gone(scheduler, calls, steps)
        return None

    def _are_passed(self, scheduler: Any, calls: int) -> bool | None:
        """Were the milestones passed within the first of several passes, long ago?"""
        last = last_milestone(scheduler)
        if last is None or calls <= last:
            return None if last is None else False
        self._end.passed = True
        if self._end.early and calls > _TIMES * last:
            return True
        return False if self._end.early is False else None

    def _is_gone(self, scheduler: Any, calls: int, steps: int) -> bool | None:
        """Has StepLR left nothing of the rate, by the batches? None: it counts something
        else, or that is not known."""
        end = _end_of_steps(scheduler)
        if end is None or calls < end:
            return None if end is None else False
        left = _most_left(scheduler)
        self._set_anew = self._set_anew or left is None or left > _SMALL
        # Whoever reads no loader evaluates after a pass, or within it.
        known = self._end.batches
        batches = self._end.first_calls if known is None else known
        if self._set_anew or batches is None or left is None:
            return None
        if _may_count_steps(scheduler, end, batches) or calls < ALMOST * steps:
            return None
        is_later = calls > batches if known is None else self._end.passes > 1
        goes_on = is_later or calls <= _QUARTER * batches
        return True if goes_on and left <= _GONE else None


def last_milestone(scheduler: Any) -> float | None:
    """Of those that may be epochs, and that make the rate much smaller."""
    milestones, gamma = scheduler.milestones, number_of(scheduler.gamma)
    if not isinstance(milestones, dict) or gamma is None:
        return None
    last = max(milestones, default=0)
    falls = gamma ** sum(milestones.values()) <= _FALL * (1 + 1e-9)
    return float(last) if falls and 0 < last < _EPOCHS else None


def _end_of_steps(scheduler: Any) -> float | None:
    """After how many of its steps StepLR has made the rate a thousandth, if these may be
    epochs, or those of one fall where it is large."""
    size, gamma = number_of(scheduler.step_size), number_of(scheduler.gamma)
    if not size or size < 1 or gamma is None or not 0 < gamma < 1:
        return None
    end = size * math.ceil(math.log(1e-3) / math.log(gamma) - 1e-9)
    counts = size if _falls_by_much(scheduler) else end
    return end if counts < _EPOCHS else None


def _may_count_steps(scheduler: Any, end: float, batches: int) -> bool:
    """May it count steps on purpose? Then it lasts for a pass, or falls once in each."""
    size = number_of(scheduler.step_size)
    if size is None or not _falls_by_much(scheduler):
        return end >= ALMOST * batches
    is_of_one = abs(end - batches) <= (1 - ALMOST) * batches
    return is_of_one or size >= ALMOST * batches


def _falls_by_much(scheduler: Any) -> bool:
    gamma = number_of(scheduler.gamma)
    return gamma is not None and gamma <= _LARGE


def _most_left(scheduler: Any) -> float | None:
    """Of the initial rates. None: not known."""
    most = 0.0
    for group in scheduler.optimizer.param_groups:
        rate, first = number_of(group.get("lr")), number_of(group.get("initial_lr"))
        if rate is None or not first:
            return None
        most = max(most, rate / first)
    return most
