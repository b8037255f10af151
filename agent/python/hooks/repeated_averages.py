"""Averages of weights that are updated for each micro-batch of a step.

    for number, batch in enumerate(batches):
        (loss_of(batch) / 4).backward()
        if number % 4 == 3:
            optimizer.step()
        average.update(model)                 # belongs beside the step

The weights stand still between two steps, and the average goes on towards them: its decay
counts as often as there are micro-batches. Such an update is known by what it does: after
a backward, and before the next step, the average has moved a share of the way to what has
not moved. A mean of all weights so far is the same where each counts equally often.
A scaler that leaves a step out does so now and then.
"""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of
from _traincheck.followers import share_of_the_way
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import Any

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.step_lines import StepLines

    Get = Callable[[], torch.Tensor | None]
    # Gives pairs of what follows and its source, of an object and the names that its
    # method uses.
    FindPairs = Callable[[Any, Collection[str]], Iterator[tuple[Get, Get]]]

# Name of the scalar.
NAME = "opt.averages_micro_batches"

_CALLS = 256  # of the updates of one object
_TRIES = 4  # to find what an object updates
_HABIT = 3  # steps in a row
_ELEMENTS = 64
_SHARES = (1e-4, 0.9995)  # more is a copy
_MEANS = 16  # updates by which a mean of all weights is known
_GROWS = 0.5  # by so much grows what a mean divides by at each update, or more


class _Seen:
    """As an update ended."""

    def __init__(self, steps: int, backwards: int, values: list[torch.Tensor]) -> None:
        self.steps = steps
        self.backwards = backwards
        self.average, self.source = (one.double().clone() for one in values)


class _Row:
    """One object that keeps averages."""

    def __init__(self) -> None:
        self.both: tuple[Get, Get] | None = None
        self.calls = 0
        self.last: _Seen | None = None
        self.moved = False  # ever, after a step?
        self.idle = False  # has it moved again since the last step?
        self.habit = 0  # steps in a row after which it did
        # What the updates divided by: 1 over their share of the way.
        self.divisors: collections.deque[float] = collections.deque(maxlen=_MEANS)

    def take(self, steps: int, backwards: int, values: list[torch.Tensor]) -> None:
        before, self.last = self.last, _Seen(steps, backwards, values)
        if before is None or before.average.shape != self.last.average.shape:
            return
        if steps != before.steps:
            self.habit = self.habit + 1 if self.idle else 0
            self.idle = False
        last = self.last
        share = share_of_the_way(before.average, last.average, last.source)
        if not _SHARES[0] < share < _SHARES[1]:
            self.divisors.clear()
            return
        self.divisors.append(1 / share)
        if steps != before.steps:
            self.moved = True
        elif backwards != before.backwards:
            self.idle = self.idle or torch.equal(last.source, before.source)

    def is_repeated(self) -> bool:
        return self.habit >= _HABIT and not self._is_mean()

    def _is_mean(self) -> bool:
        """Or is that not known?"""
        times = len(self.divisors) - 1
        return times < 1 or self.divisors[-1] - self.divisors[0] > _GROWS * times

    def end(self) -> None:
        self.calls = _CALLS
        self.both = self.last = None


class RepeatedAverages:
    """Called while one thread trains; see signs.py."""

    def __init__(
        self, find: FindPairs, lines: StepLines, values: DeviceValues, awake: Awake
    ) -> None:
        self._find = find
        self._lines = lines
        self._values = values
        self._awake = awake
        self._rows: WeakIdentityMap[Any, _Row] = WeakIdentityMap()
        self._steps = 0  # of all optimizers
        self._backwards = 0
        self._said: float | None = None

    def backward_begins(self) -> None:
        self._backwards += 1

    def stepped(self) -> None:
        self._steps += 1

    def replayed(self) -> None:
        """A CUDA graph was: steps may have run in it."""
        self._steps += 1

    def updated(self, keeper: Any, names: Collection[str]) -> None:
        """A method of it that updates averages has ended. names: what it speaks of."""
        row = self._rows.get(keeper)
        if row is None:
            row = _Row()
            self._rows.set(keeper, row)
        if row.calls >= _CALLS:
            return
        row.calls += 1
        if row.both is None and row.calls <= _TRIES:
            row.both = next(iter(self._find(keeper, names)), None)
        tensors = [] if row.both is None else [get() for get in row.both]
        few = [
            first_of(one, _ELEMENTS)
            for one in tensors
            if one is not None and one.is_floating_point() and self._values.reads(one)
        ]
        if len(few) == 2:
            take = functools.partial(row.take, self._steps, self._backwards)
            was_idle = row.idle
            self._values.read(few, take)
            if row.idle and not was_idle:
                self._lines.here(NAME)
            self._say(row)
        elif row.both is not None or row.calls == _TRIES:
            row.end()

    def _say(self, row: _Row) -> None:
        if row.moved:
            self._said = max(self._said or 0.0, float(row.is_repeated()))
            self._awake.add(NAME)

    def optimizer_steps(self) -> float | None:
        """1: an average is updated several times between two steps; None: not known of
        any."""
        return self._said
