"""How many steps are recorded, so that the agent keeps to its share of time.

A pure policy: it is fed with the times of steps and says which cycle to take.

The share is the agent's own time, a device's included, over the time that the
program would take without it. Where the share of a cycle of `every` steps, one of which is
recorded in full, is above the budget, the cycle grows along a ladder of powers
of two; where half the cycle would do with room to spare, and several decisions
in a row say so, it shrinks by one rung. Where a single step in full takes more
than a step's time, large tensors take turns: `turns` is a power of three, so
that with a step in every `every`, a power of two, each tensor's turn comes.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from _traincheck.plan import PlanError

if TYPE_CHECKING:
    from collections.abc import Collection

    from traincheck_core import Core

DEFAULT_PERCENT = 2.0
LADDER = tuple(1 << rung for rung in range(11))
TURNS = (1, 3, 9, 27, 81)

_ROOM = 0.7  # of the budget: what a smaller cycle has to keep to
_PATIENCE = 3  # decisions in a row before the agent does more
_SETTLED = 16  # steps between two decisions, at least
_SEEN = 2  # steps in full, and steps in part, that a decision needs
_OUTLIER = 4  # times the median: a pause is no step


def percent_of(text: str) -> float | None:
    """The value of TRAINCHECK_BUDGET; None: no bound. Raises PlanError."""
    if text == "off":
        return None
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise PlanError(
            f"TRAINCHECK_BUDGET is {text!r}: write a percentage of 0 to 100, or off"
        )
    return percent or None


def from_settings(core: Core, collects: bool) -> Budget | None:
    """The budget of this run, or None. Raises PlanError.

    A run that is to be learned from has none unless one is asked for.
    """
    text = core.setting("TRAINCHECK_BUDGET")
    percent = percent_of(text) if text else None if collects else DEFAULT_PERCENT
    return None if percent is None else Budget(percent, asked_for=bool(text))


class Budget:
    def __init__(self, percent: float, asked_for: bool = True) -> None:
        self.percent = percent
        self.asked_for = asked_for  # by the user; else it is the default
        self.every = 1
        self.turns = 1
        self.exhausted = False  # is even the longest cycle too dear?
        self.forget()

    def forget(self) -> None:
        """Another plan holds: what was measured is worth nothing."""
        self._full: collections.deque[int] = collections.deque(
            maxlen=32
        )  # own time of steps in full
        self._part: collections.deque[int] = collections.deque(
            maxlen=64
        )  # and of the others
        self._steps: collections.deque[int] = collections.deque(
            maxlen=128
        )  # the program's own
        self._since = 0  # steps since the last decision
        self._less = 0  # decisions in a row that found room
        self._fewer = 0
        # what a step in full cost with fewer turns
        self._before: float | None = None
        self._rotates = True  # did turns help so far?

    def add(self, own: int, wall: int, full: bool, device: int = 0) -> None:
        """A step has closed that took `wall`, the agent's `own` included. A device has
        worked for as long as `device` on what the agent began in it.

        A program that queues its work ahead loses the device's time later, perhaps in
        another step: this one may be shorter than what it has caused.
        """
        if wall <= own or own < 0:
            return  # the clock went back
        (self._full if full else self._part).append(own + device)
        self._steps.append(max(wall - own - device, 0))
        self._since += 1

    def decide(self) -> bool:
        """Called after add, once warm-up is over. True: the cycle is another."""
        if not self._is_ready():
            return False
        self._since = 0
        step = _typical(self._steps)
        full, part = _mean(self._full), _mean(self._part)
        former = self.every, self.turns
        extra = max(full - part, 0.0)
        self._take_turns(extra, step)
        if self.turns != former[1]:
            # Until it is measured: in proportion.
            extra *= former[1] / self.turns
            self._full.clear()
        self._choose(extra, part, step * self.percent / 100)
        return (self.every, self.turns) != former

    def _is_ready(self) -> bool:
        if self._since < _SETTLED or len(self._full) < _SEEN:
            return False
        return self.every == 1 or len(self._part) >= _SEEN

    def _take_turns(self, extra: float, step: float) -> None:
        rung = TURNS.index(self.turns)
        if self._before is not None and extra > 0.8 * self._before:
            # Small tensors are what is dear: turns do not help.
            self._rotates = False
            self.turns = TURNS[max(rung - 1, 0)]
        elif extra > step and self._rotates and rung + 1 < len(TURNS):
            self._before = extra
            enough = [turns for turns in TURNS if extra * self.turns <= step * turns]
            self.turns = enough[0] if enough else TURNS[-1]
            self._fewer = 0
            return
        elif rung and extra * 3 < _ROOM * step:
            self._fewer += 1
            if self._fewer >= _PATIENCE:
                self._fewer = 0
                self.turns = TURNS[rung - 1]
        else:
            self._fewer = 0
        self._before = None

    def _choose(self, extra: float, part: float, allowed: float) -> None:
        def share(every: int) -> float:
            return part + extra / every if every > 1 else part + extra

        fitting = [every for every in LADDER if share(every) <= allowed]
        self.exhausted = not fitting
        needed = fitting[0] if fitting else LADDER[-1]
        rung = LADDER.index(self.every)
        if needed > self.every:
            self.every, self._less = needed, 0
        elif rung and share(LADDER[rung - 1]) <= _ROOM * allowed:
            self._less += 1
            if self._less >= _PATIENCE:
                self.every, self._less = LADDER[rung - 1], 0
        else:
            self._less = 0


def _mean(times: Collection[float]) -> float:
    return sum(times) / len(times) if times else 0.0


def _typical(times: Collection[float]) -> float:
    """The mean without pauses."""
    ordered = sorted(times)
    bound = _OUTLIER * ordered[len(ordered) // 2]
    return _mean([time for time in ordered if time <= bound])
