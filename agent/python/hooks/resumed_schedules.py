"""Schedules that begin anew where the optimizer goes on.

The state of a scheduler belongs into a checkpoint beside that of its optimizer. Without
it a resumed training warms up once more, or decays from the first rate again. Who gives
last_epoch, or steps the scheduler to where it was, goes on as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.optim import lr_scheduler

from _traincheck.file_entries import entries_of
from _traincheck.hyper_parameters import number_of, rates_of
from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.stateless_resumes import holds_optimizer

if TYPE_CHECKING:
    from typing import Any

    import torch

# Names of the scalars: the state was read from a file, and nobody loads it; there was
# none to be read, although a schedule had moved the rate that the optimizer took over.
NOT_LOADED = "schedule.state_not_loaded"
NOT_SAVED = "schedule.state_not_saved"

_WAITING = (lr_scheduler.MultiStepLR, lr_scheduler.StepLR)


class ResumedSchedules:
    def __init__(self) -> None:
        # Has a file held the state of an optimizer, and of a schedule that had begun?
        self._resumes = False
        self._read = False
        self._had_epochs = False  # has one said that the training had finished some?
        # Optimizers that have taken over a state, and not stepped since: did that have a
        # schedule, and had this moved the rate?
        self._resumed: WeakIdentityMap[Any, tuple[bool, bool]] = WeakIdentityMap()
        self._waits: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        self._rates: WeakIdentityMap[Any, list[float]] = WeakIdentityMap()  # loaded
        self._restored: WeakIdentityMap[Any, bool] = WeakIdentityMap()  # schedulers

    def loaded(self, content: Any) -> None:
        """Called with what torch.load has given."""
        self._resumes = self._resumes or holds_optimizer(content)
        self._read = self._read or any(map(_is_schedule, entries_of(content)))
        self._had_epochs = self._had_epochs or any(
            map(_has_epochs, entries_of(content))
        )

    def optimizer_loads(self, optimizer: torch.optim.Optimizer, state: Any) -> None:
        if self._resumes and isinstance(state, dict) and state.get("state"):
            groups = state.get("param_groups")
            self._resumed.set(optimizer, (_has_schedule(groups), _has_moved(groups)))
            self._rates.set(optimizer, rates_of(groups))

    def scheduler_made(self, optimizer: Any) -> None:
        """Called before it sets its first rate. A program that has given the optimizer
        other rates than it loaded begins anew on purpose."""
        if not is_possible_key(optimizer):
            return
        loaded = self._rates.get(optimizer)
        if loaded is not None and rates_of(optimizer.param_groups) != loaded:
            self._resumed.discard(optimizer)

    def scheduler_loads(self, scheduler: Any) -> None:
        self._restored.set(scheduler, True)

    def optimizer_steps(
        self, optimizer: torch.optim.Optimizer, schedulers: list[Any]
    ) -> dict[str, float]:
        """schedulers: the optimizer's. Of its first step after a load; empty: there is
        no schedule, or no resume."""
        resumed = self._resumed.get(optimizer)
        self._resumed.discard(optimizer)
        self._rates.discard(optimizer)
        if self._waits.get(optimizer):
            return self._after_waiting(optimizer, schedulers)
        if resumed is None or not schedulers:
            return {}
        has_schedule, moved = resumed
        if self._read or moved:
            anew = not any(map(self._goes_on, schedulers))
            return {NOT_LOADED if self._read else NOT_SAVED: float(anew)}
        if has_schedule and self._had_epochs:
            self._waits.set(optimizer, True)
        return {}

    def _after_waiting(
        self, optimizer: torch.optim.Optimizer, schedulers: list[Any]
    ) -> dict[str, float]:
        """Of schedules whose rate says nothing until their first milestone: where are
        they once they have stepped?"""
        waiting = [one for one in schedulers if isinstance(one, _WAITING)]
        epochs = [number_of(one.last_epoch) or 0 for one in waiting]
        if waiting and not any(epochs):
            return {}
        self._waits.discard(optimizer)
        restored = any(self._restored.get(one) is not None for one in waiting)
        return {NOT_SAVED: float(max(epochs) <= 1 and not restored)} if waiting else {}

    def _goes_on(self, scheduler: Any) -> bool:
        epoch = number_of(getattr(scheduler, "last_epoch", None))
        restored = self._restored.get(scheduler) is not None
        return restored or epoch is None or epoch > 0


def _has_epochs(entry: Any) -> bool:
    epoch = number_of(entry.get("epoch")) if isinstance(entry, dict) else None
    return epoch is not None and epoch >= 1


def _has_schedule(groups: Any) -> bool:
    """Of an optimizer's state: was it saved while a schedule had the optimizer?"""
    return isinstance(groups, list) and any("initial_lr" in group for group in groups)


def _has_moved(groups: Any) -> bool:
    """Of an optimizer's state: has some group another rate than a schedule began with?"""
    for group in groups if isinstance(groups, list) else ():
        rates = [number_of(group.get(name)) for name in ("lr", "initial_lr")]
        if None not in rates and rates[0] != rates[1]:
            return True
    return False


def _is_schedule(state: Any) -> bool:
    """Is it the state of a scheduler that had begun?"""
    if not isinstance(state, dict) or "_step_count" not in state:
        return False
    epoch = number_of(state.get("last_epoch"))
    return epoch is not None and epoch > 0
