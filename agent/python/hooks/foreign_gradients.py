"""Gradients of another optimizer's loss in an optimizer's step.

A generator's loss passes through the discriminator and leaves gradients there. Who
clears those of the discriminator right after its own step, and not before its own
backward, steps it with the sum of both. A part that several optimizers train with may
gather what each of its losses gives: one loss that is called in one place for this
optimizer and others, or losses of heads that take turns.

What is seen of each backward tells, too, of which optimizers alone it was: a
discriminator whose loss is weighed by 0 up to some step has nothing to learn till then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.holds import first_trained
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.places import place
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from traincheck_core import Core

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.places import Place


# Name of the scalar. There must be two optimizers.
NAME = "opt.foreign_gradients"


class _Row:
    """One optimizer, by the gradient of its first trained parameter."""

    def __init__(self) -> None:
        self.seen: TensorMark | None = None  # after the last backward
        self.version = 0  # how often it had been written to
        # Steps of all optimizers when a backward gave it, since it was cleared or used.
        self.given: int | None = None
        # Another optimizer has stepped since then, and another backward added to it.
        self.mixed = False
        # Of the backward that gave it: its place, and the rows that it reached.
        self.place: Place | None = None
        self.reached: set[int] = set()
        self.said: float | None = None
        # Of the losses since its last step that gave gradients to it alone: had they
        # nothing left to learn?
        self.rests: set[bool | None] = set()

    def has_seen(self, gradient: torch.Tensor) -> bool:
        return (
            self.seen is not None
            and self.seen.is_of(gradient)
            and self.version == gradient._version
        )

    def see(self, gradient: torch.Tensor) -> None:
        self.seen, self.version = TensorMark(gradient), gradient._version


class ForeignGradients:
    """Called while one thread trains; see signs.py."""

    def __init__(self, core: Core, values: DeviceValues, awake: Awake) -> None:
        self._core = core
        self._values = values
        self._awake = awake
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()
        self._steps = 0  # of all optimizers

    def made(self, optimizer: torch.optim.Optimizer) -> _Row:
        row = _Row()
        self._rows.set(optimizer, row)
        if len(self._rows) > 1:
            self._awake.add(NAME)
        return row

    def backward_begins(self) -> None:
        for optimizer, row in self._several():
            cleared = self._is_cleared(optimizer) if self._is_foreign(row) else False
            if cleared is not False:
                row.said = 0.0 if cleared else None  # in time, or it is not known
                row.given, row.mixed = None, False

    def backward_ended(
        self,
        is_meant: Callable[[torch.optim.Optimizer], bool],
        rests: bool | None = None,
    ) -> None:
        """is_meant: was a term of the loss for this optimizer alone? rests: was nothing
        left to learn from the loss? None: not known."""
        reached: list[tuple[torch.optim.Optimizer, _Row]] = []
        for optimizer, row in self._several():
            gradient = _gradient_of(optimizer)
            if gradient is not None and not row.has_seen(gradient):
                row.see(gradient)
                reached.append((optimizer, row))
        if not reached:
            return
        if len(reached) == 1:
            reached[0][1].rests.add(rests)
        here, rows = place(self._core), {id(row) for _, row in reached}
        for optimizer, row in reached:
            if self._is_foreign(row) and not _is_shared(row, here, rows):
                row.mixed = True
            if row.given is None and not is_meant(optimizer):
                row.given, row.place, row.reached = self._steps, here, rows

    def replayed(self) -> None:
        """Backwards or steps ran in a graph: whose a gradient is, is not known until a
        backward is seen to give it anew."""
        for row in self._rows.values():
            row.given, row.mixed, row.said = None, False, None
            row.rests.add(None)

    def has_nothing_to_learn(self, optimizer: torch.optim.Optimizer) -> bool:
        """Was nothing left to learn from all losses since its last step that were its
        own? What passes through it for another one may be weighed by 0, too."""
        row = self._rows.get(optimizer)
        return row is not None and row.rests == {True}

    def steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: its gradients hold those of a backward for which another has stepped; None:
        no such backward has reached it so far."""
        row = self._rows.get(optimizer)
        if row is None:  # made before anybody looked
            row = self.made(optimizer)
        if row.mixed:
            row.said = 1.0
        row.given, row.mixed = None, False
        row.rests.clear()
        self._steps += 1
        if len(self._rows) < 2:
            self._awake.discard(NAME)
        return row.said

    def _is_foreign(self, row: _Row) -> bool:
        return row.given is not None and row.given < self._steps

    def _is_cleared(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """None: a device would have to be waited for."""
        gradient = _gradient_of(optimizer)
        if gradient is None:
            return True
        return not bool(gradient.any()) if self._values.is_here(gradient) else None

    def _several(self) -> list[tuple[torch.optim.Optimizer, _Row]]:
        """Nothing where there is one optimizer alone: no loss is another's."""
        rows = self._rows.items()
        return rows if len(rows) > 1 else []


def _is_shared(row: _Row, here: Place, reached: set[int]) -> bool:
    """Is this backward, as the one that gave the gradient, of a loss that is meant for
    this optimizer and others?"""
    others = reached - {id(row)}
    return bool(others) and (here == row.place or not others <= row.reached)


def _gradient_of(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    parameter = first_trained(optimizer)
    gradient = None if parameter is None else parameter.grad
    return gradient if gradient is not None and has_mark(gradient) else None
