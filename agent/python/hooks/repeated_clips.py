"""Gradients that are clipped after each micro-batch of a step.

    for batch in micro_batches:
        (loss_of(batch) / count).backward()
        clip_grad_norm_(model.parameters(), 1.0)      # belongs behind the loop
    optimizer.step()

What the first micro-batches gave is made smaller each time, together with what came
later: the step goes mostly by the last ones. Who clips what one loss gave, and adds
another to it, does so in different lines. Where gradients are cleared, replaced or
written to between the clipping and the next backward, each is clipped for itself. A norm
within the bound changes nothing, as where the norm is only measured; the norm of a few
micro-batches is above it at some steps only.
"""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.places import place
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.places import Place
    from _traincheck.watch import Watch

# Name of the scalar.
NAME = "opt.clips_micro_batches"

_FIRST = 16  # steps of an optimizer that are looked at
_EVERY = 64  # afterwards the first ones of so many
_HABIT = 3  # steps in a row that clip so, and steps at which something is cut
_OPTIMIZERS = 16  # that are looked at
_LOOKED_AT = 8  # parameters of one, for a gradient
_CLIPS = 8  # of a step that are kept


class _Clipping:
    """One call: was the norm above the bound?"""

    def __init__(self) -> None:
        self.cuts = False

    def take(self, bound: float, values: list[torch.Tensor]) -> None:
        self.cuts = self.cuts or bound < float(values[0]) < float("inf")


class _Window:
    """What the calls of one line have done to one gradient, since the last step."""

    def __init__(self, here: Place, gradient: torch.Tensor) -> None:
        self.place = here
        self.clips: list[_Clipping] = []
        self.backward = False  # has one begun since the last call?
        self.see(gradient)

    def see(self, gradient: torch.Tensor) -> None:
        self.mark, self.writes = TensorMark(gradient), gradient._version

    def is_unwritten(self, gradient: torch.Tensor | None) -> bool:
        """Since the last call."""
        is_same = gradient is not None and self.mark.is_of(gradient)
        return is_same and gradient is not None and gradient._version == self.writes

    def is_added_to(self, here: Place, gradient: torch.Tensor, writes: int) -> bool:
        """By a backward. writes: of the gradient as the next call of the line began."""
        is_next = self.backward and here == self.place
        return is_next and self.mark.is_of(gradient) and writes > self.writes

    def cuts_again(self) -> bool:
        """Was something cut to which a backward added, and clipped once more?"""
        return any(clipping.cuts for clipping in self.clips[:-1])

    def clips_again(self) -> bool:
        return len(self.clips) > 1


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0  # that have begun
        self.window: _Window | None = None
        self.done: collections.deque[_Window] = collections.deque(maxlen=_FIRST)
        self.before: tuple[TensorMark, int] | None = None  # as a call began
        self.said = False

    def looks(self) -> bool:
        return self.steps < _FIRST or self.steps % _EVERY < _HABIT


class RepeatedClips:
    """Called while one thread trains; see signs.py."""

    def __init__(self, watch: Watch) -> None:
        self._core = watch.core
        self._holds = watch.holds
        self._values = watch.values
        self._lines = watch.step_lines
        self._awake = watch.awake
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()
        self._inside = False  # a step, whose closure may clip
        self._open = False  # is there a window?

    def clip_begins(self) -> None:
        if self._inside:
            return
        for optimizer in self._holds.optimizers()[:_OPTIMIZERS]:
            row = self._row(optimizer)
            gradient = _gradient_of(optimizer) if row.looks() else None
            row.before = None
            if gradient is not None:
                row.before = TensorMark(gradient), gradient._version

    def clip_ended(self, norm: Any, args: Args, kwargs: Kwargs) -> None:
        """norm: what it returned. Whose gradients it changed shows in these."""
        bound = args[1] if len(args) > 1 else kwargs.get("max_norm")
        is_read = type(norm) is torch.Tensor and self._values.reads(norm)
        known = is_read and norm.numel() == 1 and type(bound) in (int, float)
        here: Place | None = None
        for optimizer, row in self._rows.items():
            before, row.before = row.before, None
            gradient = None if before is None else _gradient_of(optimizer)
            if before is None or gradient is None or not known or self._inside:
                continue
            if before[0].is_of(gradient) and gradient._version > before[1]:
                here = place(self._core) if here is None else here
                if self._clipped(row, here, gradient, before[1]):
                    self._lines.here(NAME, optimizer)
                self._read(row.window, norm, float(bound or 0))

    def _clipped(
        self, row: _Row, here: Place, gradient: torch.Tensor, writes: int
    ) -> bool:
        """Is it for what was clipped before, too? writes: of the gradient as the call
        began."""
        window = row.window
        is_next = window is not None and window.is_added_to(here, gradient, writes)
        is_again = window is not None and window.place == here and not window.backward
        if window is None or not (is_next or is_again):
            row.window = window = _Window(here, gradient)
        if is_next or not window.clips:
            window.clips = window.clips[:_CLIPS] + [_Clipping()]
        window.backward = False
        window.see(gradient)
        self._open = True
        self._awake.add(NAME)
        return is_next

    def _read(self, window: _Window | None, norm: torch.Tensor, bound: float) -> None:
        if window is not None:
            take = functools.partial(window.clips[-1].take, bound)
            self._values.read([norm], take)

    def backward_begins(self) -> None:
        if not self._open:
            return
        self._open = False
        for optimizer, row in self._rows.items():
            window = row.window
            if window is None:
                continue
            if window.is_unwritten(_gradient_of(optimizer)):
                window.backward = True
                self._open = True
            else:
                row.window = None

    def replayed(self) -> None:
        """A CUDA graph was: what it wrote shows in no version."""
        self._forget()

    def steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """Called as its step begins. 1: so it was at this step and those before; None:
        nothing of its own was clipped, or nobody looked."""
        self._inside = True
        row = self._row(optimizer)
        looks, window = row.looks(), row.window
        row.steps += 1
        if not looks or window is None:
            row.done.clear()
            return None
        row.done.append(window)
        if len(row.done) >= _HABIT:  # else it is what it was
            last = list(row.done)[-_HABIT:]
            cuts = sum(one.cuts_again() for one in row.done)
            row.said = cuts >= _HABIT and all(one.clips_again() for one in last)
        return float(row.said)

    def stepped(self) -> None:
        """An optimizer has: what it used, others begin anew."""
        if self._inside or self._open:
            self._inside = False
            self._forget()

    def _forget(self) -> None:
        self._open = False
        for row in self._rows.values():
            row.window = None

    def _row(self, optimizer: torch.optim.Optimizer) -> _Row:
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        return row


def _gradient_of(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    """The first one, if it can be told from others."""
    for number, parameter in enumerate(_trained(optimizer)):
        gradient = parameter.grad
        if gradient is not None:
            is_known = has_mark(gradient) and not gradient.is_inference()
            return gradient if is_known else None
        if number == _LOOKED_AT:
            break
    return None


def _trained(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    return (one for one in parameters_of(optimizer) if one.requires_grad)
