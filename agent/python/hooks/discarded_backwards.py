"""Gradients that are cleared before the step that they were computed for.

Who accumulates micro-batches and clears in each one steps with the last one only.
Others clear without a step and mean it: a discriminator clears what the generator's
backward left (another place in the code, or another optimizer has stepped with it), a
bad batch is left out (once), SAM climbs by its first gradients (the parameters have
changed), PCGrad collects and writes them back (the gradients are other tensors, or
other than the last backward left them, by more than scaling and clipping).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from _traincheck.device_values import first_of
from _traincheck.holds import first_trained, parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import parameters_in
from _traincheck.old_gradients import is_of_torch
from _traincheck.places import place

if TYPE_CHECKING:
    import torch
    from traincheck_core import Core

    from _traincheck.device_values import DeviceValues, Take
    from _traincheck.places import Place
    from _traincheck.step_lines import StepLines

# Names of the scalars. The first one: what a step was to use has been cleared, and
# nothing else came.
CLEARS_FIRST = "opt.clears_before_step"
NAME = "opt.discards_backwards"

_HABIT = 2  # steps in a row
_ELEMENTS = 64  # of a gradient, that are compared
_FEWEST = 2  # of these that are not 0
_CLOSE = 0.02  # as scaling in a low precision rounds
_NONE = (0, 0)  # no gradient


class _Row:
    """One optimizer, since its last step."""

    def __init__(self) -> None:
        # Of a parameter when gradients were cleared, or stepped with.
        self.version: int | None = None
        self.since: set[Place] = set()  # backwards since then
        self.unused: set[Place] = set()  # of these, since a step of another one
        self.gradient = _NONE  # after the last of them, see _mark
        self.discarded: set[Place] = set()
        # Some elements after the last of them, once some were discarded.
        self.given: torch.Tensor | None = None
        self.habit = 0
        self.judged = False
        # The gradient that was cleared last, if no backward has given one since.
        self.cleared: tuple[int, int] | None = None
        self.emptied = 0  # steps in a row that found nothing else
        self.said: bool | None = None

    def clear(self) -> None:
        self.since.clear()
        self.unused.clear()

    def see_cleared(
        self, mark: tuple[int, int] | None, used: bool, is_bare: bool
    ) -> None:
        """Called as a step begins. mark: of the gradient that it finds; is_bare: it finds
        none at all, and would do nothing."""
        cleared, self.cleared = self.cleared, None
        if cleared is None and not used:
            return
        # Cleared gradients are None, or were written to once. `p.grad = None` is no call.
        number, writes = cleared or _NONE
        empty = cleared is not None and mark in (None, (number, writes + 1))
        empty = empty or (cleared is None and is_bare)
        self.emptied = self.emptied + 1 if empty else 0
        self.said = self.emptied >= _HABIT

    def take_given(self, values: list[torch.Tensor]) -> None:
        self.given = values[0].clone()

    def take_used(self, is_unwritten: bool, values: list[torch.Tensor]) -> None:
        """Called with what a step uses where backwards were discarded."""
        given, self.given = self.given, None
        is_same = None if given is None else _is_scaled_or_clipped(given, values[0])
        if is_unwritten if is_same is None else is_same:
            self.judge(True)

    def judge(self, is_wrong: bool) -> None:
        self.judged = True
        self.habit = self.habit + 1 if is_wrong else 0


class DiscardedBackwards:
    def __init__(self, core: Core, lines: StepLines, values: DeviceValues) -> None:
        self._core = core
        self._lines = lines
        self._values = values
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        self._rows.set(optimizer, _Row())

    def backward_ended(self) -> None:
        """Called at the end of every outermost one."""
        rows = self._rows.items()
        if not rows:
            return
        here = place(self._core)
        for optimizer, row in rows:
            parameter = first_trained(optimizer)
            if parameter is None:
                continue
            mark = _mark(parameter)
            if mark is not None and mark != row.gradient:  # it gave a gradient
                row.since.add(here)
                row.unused.add(here)
                row.cleared = None
                row.gradient = mark
                if row.discarded:
                    self._read(parameter, row.take_given)

    def clears(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before its gradients are cleared, outside of its step."""
        row, parameter = self._rows.get(optimizer), first_trained(optimizer)
        if row is None:
            return
        if row.since and parameter is not None:
            row.cleared = _mark(parameter)
            self._lines.here(CLEARS_FIRST, optimizer)
        version = None if parameter is None else parameter._version
        if version is not None and version == row.version:
            if row.unused:
                self._lines.here(NAME, optimizer)
            row.discarded |= row.unused
        row.clear()
        row.gradient = _NONE
        row.version = version

    def module_clears(self, module: torch.nn.Module) -> None:
        ids = {id(parameter) for parameter in parameters_in(module)}
        for optimizer in self._rows.keys():
            if id(first_trained(optimizer)) in ids:
                self.clears(optimizer)

    def replayed(self) -> None:
        """Backwards or steps ran in a graph: what was written shows in no version."""
        for optimizer in self._rows.keys():
            self._rows.set(optimizer, _Row())

    def skips(self, optimizer: torch.optim.Optimizer) -> None:
        """A scaler leaves its step out: its gradients are to be thrown away."""
        row = self._rows.get(optimizer)
        if row is not None:
            row.clear()
            row.cleared = None

    def clears_first(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Did this step and the last one find nothing but what was cleared after their
        backward? Asked after steps; None: no backward has given it anything yet."""
        row = self._rows.get(optimizer)
        return None if row is None else row.said

    def steps(
        self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor | None
    ) -> float | None:
        """1: it was so at this step and the last one; None: no occasion yet.

        parameter: its first trained one, here and in stepped.
        """
        row = self._rows.get(optimizer)
        if row is None or parameter is None:
            return None
        used = row.since
        mark = _mark(parameter)
        is_bare = bool(used) and mark is None and _is_bare(optimizer)
        row.see_cleared(mark, bool(used), is_bare)
        if used and mark is not None and mark[0] == row.gradient[0]:
            if not row.discarded & used:
                row.judge(False)
            else:
                is_unwritten = mark == row.gradient
                take = functools.partial(row.take_used, is_unwritten)
                if not self._read(parameter, take) and is_unwritten:
                    row.judge(True)
        row.clear()
        row.discarded = set()
        return float(row.habit >= _HABIT) if row.judged else None

    def stepped(
        self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor | None
    ) -> None:
        for other in self._rows.values():
            other.unused.clear()
        row = self._rows.get(optimizer)
        if row is not None:
            row.clear()  # of its closure
            row.version = None if parameter is None else parameter._version

    def _read(self, parameter: torch.Tensor, take: Take) -> bool:
        """Some elements of its gradient; False: they cannot be read."""
        gradient = parameter.grad
        if gradient is None or not self._values.reads(gradient):
            return False
        self._values.read([first_of(gradient, _ELEMENTS)], take)
        return True


def _is_scaled_or_clipped(given: torch.Tensor, used: torch.Tensor) -> bool | None:
    """Is what is used what was given, but for a factor and a bound of its elements?
    None: too few elements tell."""
    if given.shape != used.shape or given.is_complex() or used.is_complex():
        return False
    given, used = given.double(), used.double()
    known = given != 0
    if int(known.sum()) < _FEWEST:
        return None
    # Those that a bound leaves alone have the largest share.
    bound = used.abs().max()
    scaled = (given * (used[known] / given[known]).max()).clamp(-bound, bound)
    return bool(((used - scaled).abs() <= _CLOSE * scaled.abs()).all())


def _is_bare(optimizer: torch.optim.Optimizer) -> bool:
    """Has nothing that it holds a gradient? One of the user's may keep them elsewhere."""
    return is_of_torch(optimizer) and all(
        parameter.grad is None for parameter in parameters_of(optimizer)
    )


def _mark(parameter: torch.Tensor) -> tuple[int, int] | None:
    """Of its gradient: which tensor it is, and how often it was written."""
    gradient = parameter.grad
    return None if gradient is None else (id(gradient), gradient._version)
