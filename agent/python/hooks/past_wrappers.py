"""Gradients of a wrapped model from backwards that its wrapper knows nothing of.

DistributedDataParallel prepares its reduction in its own forward. Where a training calls
the parts of the wrapped model one by one, no forward of the wrapper runs and nothing is
averaged. Who averages by hand calls a collective between two steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import parameters_in

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel as DDP

    _Wrappers = WeakIdentityMap[torch.optim.Optimizer, tuple[int, list["_Row"]]]

# Name of the scalar.
NAME = "opt.steps_past_wrapper"

_HABIT = 2  # steps in a row
_NONE = (0, 0)  # no gradient


class _Row:
    """One wrapper, since the last step of an optimizer of its parameters."""

    def __init__(self) -> None:
        self.called = False  # was its forward, with gradients?
        self.before = _NONE  # the gradient as a backward begins, see _mark
        self.past = False  # has a backward given it a gradient without a forward?
        self.collectives = False  # has the program called one?
        self.habit = 0

    def stepped(self) -> bool | None:
        """Does it go by such gradients again? None: not known, or by none."""
        called, past = self.called, self.past and not self.collectives
        self.called = self.past = self.collectives = False
        if called:
            self.habit = 0
            return False
        self.habit = self.habit + 1 if past else 0
        return True if self.habit >= _HABIT else None


class PastWrappers:
    def __init__(self) -> None:
        self._rows: WeakIdentityMap[DDP, _Row] = WeakIdentityMap()
        # Wrappers of what each optimizer holds, as of so many wrappers.
        self._of: _Wrappers = WeakIdentityMap()
        self._averaged = False  # are models averaged now and then?

    def wrapped(self, wrapper: DDP) -> None:
        """Called with each wrapper whose group has several ranks."""
        self._rows.set(wrapper, _Row())

    def forward_begins(self, wrapper: DDP) -> None:
        """Called where its inner forward begins, with gradients."""
        row = self._rows.get(wrapper)
        if row is not None:
            row.called = True

    def collective(self) -> None:
        """Called before each that the program makes."""
        for row in self._rows.values():
            row.collectives = True

    def models_are_averaged(self) -> None:
        self._averaged = True

    def replayed(self) -> None:
        """A CUDA graph was: its forwards and collectives are not seen."""
        self.collective()

    def backward_begins(self) -> None:
        """Called before every outermost one."""
        for wrapper, row in self._rows.items():
            if not row.called and not row.past:
                row.before = _mark(wrapper)

    def backward_ended(self) -> None:
        for wrapper, row in self._rows.items():
            if not row.called and not row.past:
                row.past = _mark(wrapper) != row.before

    def steps(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Called as its step begins."""
        if len(self._rows) == 0 or self._averaged:
            return None
        found = [row.stepped() for row in self._rows_of(optimizer)]
        known = [each for each in found if each is not None]
        return any(known) if known else None

    def _rows_of(self, optimizer: torch.optim.Optimizer) -> list[_Row]:
        known = self._of.get(optimizer)
        if known is not None and known[0] == len(self._rows):
            return known[1]
        held = set(map(id, parameters_of(optimizer)))
        rows = [
            row
            for wrapper, row in self._rows.items()
            if any(id(p) in held for p in parameters_in(wrapper))
        ]
        self._of.set(optimizer, (len(self._rows), rows))
        return rows


def _mark(wrapper: DDP) -> tuple[int, int]:
    """Of the gradient of its first trained parameter: which tensor it is, and how often
    it was written."""
    for parameter in parameters_in(wrapper):
        if parameter.requires_grad:
            gradient = parameter.grad
            return _NONE if gradient is None else (id(gradient), gradient._version)
    return _NONE
