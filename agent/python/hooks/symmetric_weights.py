"""Layers whose units are all alike, and stay so.

Units of a layer that begin with the same weights, and are used alike, get the same
gradients: the layer moves, and computes one value many times. A last layer of zeros
(adapters, zero convolutions) comes apart with its first step. Compared are the rows
of matrices, after some steps that changed them; on a device that would wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOKS = frozenset((0, 1, 2, 3, 4, 8, 16))  # steps that are looked at
_CHANGES = 2  # from look to look
_PARAMETERS = 64
_ELEMENTS = 1_000_000  # of a matrix


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        # id of a matrix -> its first row when it was last looked at, and how often
        # that had changed.
        self.alike: dict[int, tuple[torch.Tensor, int]] = {}


class SymmetricWeights:
    def __init__(self) -> None:
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: a matrix has moved twice and all its rows are equal; None: no look."""
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        number, row.steps = row.steps, row.steps + 1
        if number not in _LOOKS:
            return None
        alike: dict[int, tuple[torch.Tensor, int]] = {}
        matrices = list(_matrices(optimizer))
        for parameter in matrices:
            first = _alike(parameter)
            if first is not None:
                alike[id(parameter)] = first, _changes(row, parameter, first)
        row.alike = alike
        if number == 0 or not matrices:
            return None
        return float(any(changes >= _CHANGES for _, changes in alike.values()))


def _changes(row: _Row, parameter: torch.Tensor, first: torch.Tensor) -> int:
    before = row.alike.get(id(parameter))
    if before is None:
        return 0
    return before[1] + (not torch.equal(before[0], first))


def _matrices(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    found = 0
    for parameter in parameters_of(optimizer):
        if type(parameter) is not torch.nn.Parameter or not parameter.is_cpu:
            continue
        if parameter.dim() < 2 or parameter.layout != torch.strided:
            continue
        # Few weights a unit may be equal and right: those of one input.
        if len(parameter) > 1 and 1 < parameter[0].numel() < _ELEMENTS:
            yield parameter
            found += 1
        if found == _PARAMETERS:
            return


def _alike(parameter: torch.Tensor) -> torch.Tensor | None:
    """A copy of its first row where all others are equal to it."""
    with torch._C.DisableTorchFunctionSubclass():
        values = parameter.detach()
        first = values[0]
        if not torch.equal(values[-1], first):
            return None
        if values.numel() > _ELEMENTS or not bool((values == first).all()):
            return None
        return first.clone()
