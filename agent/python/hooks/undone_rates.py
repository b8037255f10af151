"""Schedulers of one optimizer of which one throws away what the other has set.

Some schedulers multiply the rate that they find. Others compute it from the initial
one, whatever it is now: stepped side by side with others, they undo what these have
done, each time. A warm-up by LambdaLR beside a CosineAnnealingLR never decays.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck.hyper_parameters import rates_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

# Name of the scalar.
NAME = "schedule.undone"

_FROM_INITIAL = (
    torch.optim.lr_scheduler.CosineAnnealingWarmRestarts,
    torch.optim.lr_scheduler.CyclicLR,
    torch.optim.lr_scheduler.LambdaLR,
    torch.optim.lr_scheduler.OneCycleLR,
)
# Times: one scheduler may take over from another.
_TIMES = 3
# Of schedulers that took turns so often, which is no taking over: milestones are few.
_TIMES_OF_TURNS = 2
_TURNS = 4


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.last: weakref.ref[Any] | None = None  # scheduler that was stepped
        self.left: list[float] = []  # rates that it left
        self.run = 0  # its steps in a row
        # By scheduler: times that it threw rates away, and turns.
        self.times: WeakIdentityMap[Any, tuple[int, int]] = WeakIdentityMap()
        # None: no scheduler has been stepped after another one.
        self.undone: bool | None = None


class UndoneRates:
    def __init__(self) -> None:
        self._rows: WeakIdentityMap[Any, _Row] = WeakIdentityMap()

    def begins(self, scheduler: Any) -> None:
        """It is about to be stepped."""
        row = self._rows.get(getattr(scheduler, "optimizer", None))
        other = None if row is None or row.last is None else row.last()
        if row is None or other is None or not isinstance(scheduler, _FROM_INITIAL):
            return
        if other is scheduler or _is_within(scheduler, other):
            return
        run, row.run = row.run, 0
        row.last = None  # the method may call that of its base class
        row.undone = bool(row.undone)
        own = rates_of({"lr": rate} for rate in getattr(scheduler, "_last_lr", ()))
        moved = _differ(row.left, own)
        as_left = not _differ(row.left, rates_of(scheduler.optimizer.param_groups))
        times, turns = row.times.get(scheduler) or (0, 0)
        turns = turns + 1 if run == 1 and as_left else 0
        # One that moves the rates at milestones is undone now and then.
        times = times + int(moved) if as_left and (moved or turns) else 0
        row.times.set(scheduler, (times, turns))
        few = _TIMES_OF_TURNS if turns >= _TURNS else _TIMES
        row.undone = row.undone or times >= few

    def stepped(self, scheduler: Any) -> None:
        optimizer = getattr(scheduler, "optimizer", None)
        if optimizer is None:
            return
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        is_same = row.last is not None and row.last() is scheduler
        row.run = row.run + 1 if is_same else 1
        row.last = weakref.ref(scheduler)
        row.left = rates_of(optimizer.param_groups)

    def of(self, optimizer: Any) -> bool | None:
        row = self._rows.get(optimizer)
        return None if row is None else row.undone


def _is_within(scheduler: Any, other: Any) -> bool:
    """Is the other one what steps it (SequentialLR)?"""
    return any(one is scheduler for one in getattr(other, "_schedulers", ()))


def _differ(rates: list[float], others: list[float]) -> bool:
    if len(rates) != len(others):
        return False  # a group has joined
    return any(
        not math.isclose(one, other, rel_tol=1e-7) for one, other in zip(rates, others)
    )
