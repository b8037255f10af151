"""The user's lines that make schedulers, and that step them.

A schedule shows that it is wrong at a step of its optimizer. People look for the line
that made it, or for the one that steps it at the wrong time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.counted_lengths import NAME as COUNTS_BATCHES
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.outrun_schedules import NAME as OUTRUNS
from _traincheck.plateau_metrics import NAME as METRICS_APART
from _traincheck.slow_warm_ups import NAME as SLOW_WARM_UP

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core, Scalars

    from _traincheck.findings import Findings

EARLY = "schedule.early"
# Facts about when a scheduler is stepped; the others are about how it was made.
_OF_STEPS = frozenset(
    (COUNTS_BATCHES, EARLY, METRICS_APART, OUTRUNS, SLOW_WARM_UP, "schedule_moved")
)
# Facts that are read from numbers of another name.
_FACTS = {"schedule_idle": "schedule.idle", "schedule_moved": "schedule.fast"}


class ScheduleLines:
    def __init__(self, core: Core) -> None:
        self._core = core
        # scheduler -> number of the site
        self._made: WeakIdentityMap[Any, int] = WeakIdentityMap()
        self._stepped: WeakIdentityMap[Any, int] = WeakIdentityMap()

    def made(self, scheduler: Any) -> None:
        """Called within its construction."""
        self._made.set(scheduler, self._core.site_here())

    def begun(self, scheduler: Any) -> None:
        """The steps until now were a constructor's."""
        self._stepped.discard(scheduler)

    def stepped(self, scheduler: Any) -> None:
        if self._stepped.get(scheduler) is None:
            self._stepped.set(scheduler, self._core.site_here())

    def of(self, found: Findings) -> Scalars:
        """Scalars with the lines of what was found: its causes are schedulers."""
        scalars = {}
        for name, scheduler in found.causes.items():
            lines = self._stepped if name in _OF_STEPS else self._made
            line = lines.get(scheduler)
            if line:
                scalars[f"{_FACTS.get(name, name)}.site", 0] = float(line)
        return scalars
