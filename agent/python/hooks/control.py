"""What is recorded from which step on: the plan, its changes, and the budget.

All of it changes between two steps only and is a function of the step's number,
the same on all ranks.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

from _traincheck import plan as plans

if TYPE_CHECKING:
    from collections.abc import Callable

    from traincheck_core import Core

    from _traincheck.budget import Budget
    from _traincheck.plan import Plan
    from _traincheck.planner import Planner


_MOST_LATE = 256  # steps that wait for a device; a result that late never comes


class Recorded:
    """What the step that runs now records, for the hooks that ask."""

    def __init__(self) -> None:
        self.states = True  # content of variables at the points of a step
        self.off = False


class _Closed(NamedTuple):
    """A step, until a device has done what was begun in it."""

    own: int
    wall: int
    full: bool
    period: int  # that ended with it, see core.end_period()


class Control:
    def __init__(
        self, core: Core, planner: Planner, recorded: Recorded, budget: Budget | None
    ) -> None:
        self._core = core
        self._planner = planner
        self._recorded = recorded
        self._budget = budget
        self._waiting: tuple[int, Plan] | None = None  # from this step on
        # (own, all) when the last step closed
        self._times: tuple[int, int] | None = None
        self._measured: collections.deque[_Closed] = collections.deque()
        self._period = 0  # the last one that ended
        self._former = 0  # the last one under another cycle or plan
        # Steps that one replay of a CUDA graph makes; how many of them are still to
        # close, and: was one of them recorded in full?
        self._at_once = 1
        self._more = 0
        self._was_full = False
        self._told = False  # of the plan that held from the beginning
        # Steps recorded in full until the plan that is applied gives way.
        self._left = planner.plan.steps
        # Called when a plan begins to hold, or when the process turns out to train.
        self.planned: Callable[[], None] = lambda: None

    def forked(self) -> None:
        """In the child: the core records everything again, unless it is off."""
        self._times = None
        self._measured.clear()
        self._former = 0
        self._told = False
        self._planner.tell_nothing()
        self._recorded.states = not self._recorded.off

    def trains(self) -> None:
        """The process is one of the run's; says what it began with."""
        if self._told:
            return
        self._planner.tell_all()
        if self._planner.plan.version:
            self._tell(self._planner.plan)
        self._told = True
        self.planned()

    def process_ends(self) -> None:
        """What follows is recorded in any case: else the end would look like a
        death."""
        if self._recorded.off:
            self._set(self._core.CAPTURE_ALL)

    def closes_at_once(self, steps: int) -> None:
        """So many steps that close next were made together. Nobody sees what lies
        between them: they are measured as one, and one at most is recorded in full."""
        self._at_once = steps
        self._more = steps - 1

    def step_closed(self) -> None:
        """Called after everything else that belongs to the step."""
        step = self._core.open_step()
        self._was_full = self._was_full or self._recorded.states
        if self._more:
            self._more -= 1
            self._go_on(step)
            return
        self._measure(step)
        self._was_full = False
        self._receive()
        if self._waiting is not None and step >= self._waiting[0]:
            self._change(self._waiting[1])
            self._waiting = None
        elif self._left and self._recorded.states:
            self._count_down()
        self._choose(step)

    def _go_on(self, step: int) -> None:
        """To another step that was made together with the one that closed."""
        if not self._was_full:
            self._choose(step)
        elif not self._recorded.off:
            self._set(self._core.CAPTURE_SKELETON)

    def _count_down(self) -> None:
        """The step that closed was recorded in full: a zoom has one less."""
        self._left -= 1
        then = self._planner.plan.then
        if self._left == 0 and then is not None:
            self._change(then)

    def _receive(self) -> None:
        change = self._core.next_plan()
        if change is None:
            return
        version, first_step, text = change
        try:
            plan = plans.read_text(text, f"plan {version}")
        except plans.PlanError as error:
            self._core.log_once(
                "change of plan", f"a change of the capture plan is refused: {error}"
            )
            return
        plan.version = version
        if plan.then is not None:
            plan.then.version = version
        self._waiting = (first_step, plan)

    def _change(self, plan: Plan) -> None:
        if self._budget is not None:
            self._budget.forget()
            self._former = self._period
        # While nothing is recorded the marks would be lost.
        if self._recorded.off:
            self._set(self._core.CAPTURE_ALL)
        self._tell(plan)
        self._left = plan.steps
        self._planner.apply(plan)
        self.planned()

    def _tell(self, plan: Plan) -> None:
        self._told = True
        self._core.record_mark(self._core.MARK_PLAN_APPLIED, 0, plan.version)

    def _measure(self, step: int) -> None:
        before, times = self._times, self._core.times()
        self._times = times
        self._period = self._core.end_period()
        budget, plan = self._budget, self._planner.plan
        if budget is None or before is None or self._recorded.off:
            return
        own, wall = times[0] - before[0], times[1] - before[1]
        wall = own + (wall - own) // self._at_once
        self._measured.append(_Closed(own, wall, self._was_full, self._period))
        self._add_measured(budget)
        changed = step >= plan.warm_up and budget.decide()
        if changed:
            self._former = self._period
        # Steps of a millisecond exceed the default, and nobody minds.
        if changed and budget.exhausted and budget.asked_for:
            self._core.log_once(
                "budget",
                f"what every step records takes more than the {budget.percent:g}% "
                "of TRAINCHECK_BUDGET",
            )

    def _add_measured(self, budget: Budget) -> None:
        """Those of which all is known, in their order: what a device does for a step
        may end some steps later, and is that step's all the same."""
        while self._measured:
            closed = self._measured[0]
            device = self._core.device_time(closed.period)
            if device is None and len(self._measured) <= _MOST_LATE:
                return
            self._measured.popleft()
            if closed.period > self._former:
                budget.add(closed.own, closed.wall, closed.full, device or 0)

    def _choose(self, step: int) -> None:
        core, plan, budget = self._core, self._planner.plan, self._budget
        if plan.mode == "off":
            self._set(core.CAPTURE_OFF)
            return
        every, turns = (budget.every, budget.turns) if budget is not None else (1, 1)
        if step < plan.warm_up:
            turns = 1
        whole = plan.samples(step, every)
        self._set(core.CAPTURE_ALL if whole else core.CAPTURE_SKELETON, turns, step)

    def _set(self, mode: int, turns: int = 1, step: int = 0) -> None:
        self._core.set_capture(mode, turns, step)
        self._recorded.states = mode == self._core.CAPTURE_ALL
        self._recorded.off = mode == self._core.CAPTURE_OFF
