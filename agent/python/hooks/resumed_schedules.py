"""Schedules that begin anew where the optimizer goes on.

The state of a scheduler belongs into a checkpoint beside that of its optimizer. Without
it a resumed training warms up once more, or decays from the first rate again. Who gives
last_epoch, or steps the scheduler to where it was, goes on as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


class ResumedSchedules:
    def __init__(self) -> None:
        # Has a file held the state of an optimizer, and of a schedule that had begun?
        self._resumes = False
        self._read = False
        # Optimizers that have taken over a state, and not stepped since: had a schedule
        # moved its rate?
        self._resumed: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        self._rates: WeakIdentityMap[Any, list[float]] = WeakIdentityMap()  # loaded
        self._restored: WeakIdentityMap[Any, bool] = WeakIdentityMap()  # schedulers

    def loaded(self, content: Any) -> None:
        """Called with what torch.load has given."""
        self._resumes = self._resumes or holds_optimizer(content)
        self._read = self._read or any(map(_is_schedule, entries_of(content)))

    def optimizer_loads(self, optimizer: torch.optim.Optimizer, state: Any) -> None:
        if self._resumes and isinstance(state, dict) and state.get("state"):
            self._resumed.set(optimizer, _has_moved(state.get("param_groups")))
            self._rates.set(optimizer, rates_of(state.get("param_groups")))

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
        moved = self._resumed.get(optimizer)
        self._resumed.discard(optimizer)
        self._rates.discard(optimizer)
        if moved is None or not schedulers or not (self._read or moved):
            return {}
        anew = not any(map(self._goes_on, schedulers))
        return {NOT_LOADED if self._read else NOT_SAVED: float(anew)}

    def _goes_on(self, scheduler: Any) -> bool:
        epoch = number_of(getattr(scheduler, "last_epoch", None))
        restored = self._restored.get(scheduler) is not None
        return restored or epoch is None or epoch > 0


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
