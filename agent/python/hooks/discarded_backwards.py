"""Gradients that are cleared before the step that they were computed for.

Who accumulates micro-batches and clears in each one steps with the last one only.
Others clear without a step and mean it: a discriminator clears what the generator's
backward left (another place in the code, or another optimizer has stepped with it), a
bad batch is left out (once), SAM climbs by its first gradients (the parameters have
changed), PCGrad collects and writes them back (the gradients are other tensors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.holds import first_trained
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.places import place

if TYPE_CHECKING:
    import torch
    from traincheck_core import Core

    from _traincheck.places import Place

_HABIT = 2  # steps in a row
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
        self.habit = 0
        self.judged = False

    def clear(self) -> None:
        self.since.clear()
        self.unused.clear()


class DiscardedBackwards:
    def __init__(self, core: Core) -> None:
        self._core = core
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
                row.gradient = mark

    def clears(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before its gradients are cleared, outside of its step."""
        row, parameter = self._rows.get(optimizer), first_trained(optimizer)
        if row is None:
            return
        version = None if parameter is None else parameter._version
        if version is not None and version == row.version:
            row.discarded |= row.unused
        row.clear()
        row.gradient = _NONE
        row.version = version

    def module_clears(self, module: torch.nn.Module) -> None:
        ids = {id(parameter) for parameter in module.parameters()}
        for optimizer in self._rows.keys():
            if id(first_trained(optimizer)) in ids:
                self.clears(optimizer)

    def skips(self, optimizer: torch.optim.Optimizer) -> None:
        """A scaler leaves its step out: its gradients are to be thrown away."""
        row = self._rows.get(optimizer)
        if row is not None:
            row.clear()

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
        if used and mark is not None and mark[0] == row.gradient[0]:
            row.judged = True
            row.habit = row.habit + 1 if row.discarded & used else 0
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


def _mark(parameter: torch.Tensor) -> tuple[int, int] | None:
    """Of its gradient: which tensor it is, and how often it was written."""
    gradient = parameter.grad
    return None if gradient is None else (id(gradient), gradient._version)
