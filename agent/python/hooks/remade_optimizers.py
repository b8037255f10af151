"""Optimizers that are made anew for parameters that another one has trained.

Each begins without moments, and a scheduler of the former goes on with that one.
Where something has written to the parameters in between (weights of a server, the
rewound ones of a pruning), another training begins. L-BFGS solves a whole problem in
one step: it is made anew for each problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.awake import Awake

    Key = tuple[str, tuple[int, ...]]

NAME = "opt.made_anew"  # of the scalar
_OFTEN = 3  # a phase or a resume makes it anew once
_LINES = 256  # the last ones


class _Line:
    """Optimizers of the same parameters, one after the other."""

    def __init__(self) -> None:
        self.anew = 0
        self.stepped = False  # has the last one?
        self.version: int | None = None  # of a parameter after its last step


class RemadeOptimizers:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._lines: dict[Key, _Line] = {}
        self._of: WeakIdentityMap[torch.optim.Optimizer, _Line] = WeakIdentityMap()

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            return
        key = _key(optimizer)
        line = self._lines.pop(key, None) or _Line()
        if len(self._lines) == _LINES:
            del self._lines[next(iter(self._lines))]
        self._lines[key] = line
        line.anew += line.stepped
        line.stepped = False
        self._of.set(optimizer, line)
        self._awake.add(NAME)

    def loads(self, taker: Any) -> None:
        """It takes over a state, if it is an optimizer."""
        line = self._of.get(taker)
        if line is not None and not line.stepped:
            line.anew = max(0, line.anew - 1)

    def stepped(
        self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor | None
    ) -> None:
        """parameter: its first trained one, here and in steps."""
        line = self._of.get(optimizer)
        if line is not None:
            line.version = _version(parameter)

    def replayed(self) -> None:
        """Backwards or steps ran in a graph: what they wrote shows in no version."""
        for line in self._lines.values():
            line.version = None

    def steps(
        self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor | None
    ) -> float | None:
        line = self._of.get(optimizer)
        if line is None:
            return None
        if not line.stepped and line.version != _version(parameter):
            line.anew = 0
        line.stepped = True
        if line.anew:
            return float(line.anew >= _OFTEN)
        if all(line.stepped and not line.anew for line in self._of.values()):
            self._awake.discard(NAME)
        return None


def _version(parameter: torch.Tensor | None) -> int | None:
    return None if parameter is None else parameter._version


def _key(optimizer: torch.optim.Optimizer) -> Key:
    tensors = list(parameters_of(optimizer))
    ends = (len(tensors), id(tensors[0]), id(tensors[-1])) if tensors else ()
    return type(optimizer).__name__, ends
