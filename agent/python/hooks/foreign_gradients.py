"""Gradients of another optimizer's loss in an optimizer's step.

A generator's loss passes through the discriminator and leaves gradients there. Who
clears those of the discriminator right after its own step, and not before its own
backward, steps it with the sum of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.holds import first_trained
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    import torch


class _Row:
    """One optimizer, by the gradient of its first trained parameter."""

    def __init__(self) -> None:
        self.seen: TensorMark | None = None  # after the last backward
        self.version = 0  # how often it had been written to
        self.given = False  # by a backward since it was cleared or used
        self.foreign = False  # and another optimizer has stepped since then
        self.mixed = False  # and another backward has added to it
        self.said: float | None = None

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

    def __init__(self) -> None:
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        self._rows.set(optimizer, _Row())

    def backward_begins(self) -> None:
        for optimizer in self._rows.keys():
            row = self._rows.get(optimizer)
            if row is not None and row.given and _is_cleared(optimizer):
                if row.foreign:
                    row.said = 0.0  # in time
                row.given = row.foreign = row.mixed = False

    def backward_ended(self) -> None:
        for optimizer in self._rows.keys():
            row = self._rows.get(optimizer)
            if row is None:
                continue
            gradient = _gradient_of(optimizer)
            if gradient is not None and not row.has_seen(gradient):
                row.see(gradient)
                row.mixed = row.mixed or row.foreign
                row.given = True

    def steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: its gradients hold those of a backward for which another has stepped; None:
        no such backward has reached it so far."""
        row = self._rows.get(optimizer)
        if row is None:  # made before anybody looked
            row = _Row()
            self._rows.set(optimizer, row)
        if row.mixed:
            row.said = 1.0
        row.given = row.foreign = row.mixed = False
        for other in self._rows.keys():
            theirs = self._rows.get(other)
            if other is not optimizer and theirs is not None:
                theirs.foreign = theirs.foreign or theirs.given
        return row.said


def _gradient_of(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    parameter = first_trained(optimizer)
    gradient = None if parameter is None else parameter.grad
    return gradient if gradient is not None and has_mark(gradient) else None


def _is_cleared(optimizer: torch.optim.Optimizer) -> bool:
    gradient = _gradient_of(optimizer)
    # A device is not waited for: nothing is said of it.
    return gradient is None or not gradient.is_cpu or not bool(gradient.any())
