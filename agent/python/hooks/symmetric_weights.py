"""Layers whose units are all alike, and stay so.

Units of a layer that begin with the same weights, and are used alike, get the same
gradients: the layer moves, and computes one value many times. A last layer of zeros
(adapters, zero convolutions) comes apart with its first step. Compared are the rows
of matrices, after some steps that changed them; on a device only those of small ones.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import MOST, bytes_of
from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues

NAME = "opt.units_alike"  # of the scalar
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
        self.said: float | None = None

    def looks_again(self) -> bool:
        return self.steps <= max(_LOOKS)

    def look(self, number: int, ids: list[int], matrices: list[torch.Tensor]) -> None:
        """matrices: those of these ids at a step."""
        alike: dict[int, tuple[torch.Tensor, int]] = {}
        for matrix, values in zip(ids, matrices):
            first = _alike(values)
            if first is not None:
                alike[matrix] = first, self._changes(matrix, first)
        self.alike = alike
        if number != 0:
            again = (changes >= _CHANGES for _, changes in alike.values())
            self.said = float(any(again))

    def _changes(self, matrix: int, first: torch.Tensor) -> int:
        before = self.alike.get(matrix)
        if before is None:
            return 0
        return before[1] + (not torch.equal(before[0], first))


class SymmetricWeights:
    def __init__(self, values: DeviceValues, awake: Awake) -> None:
        self._values = values
        self._awake = awake
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: a matrix has moved twice and all its rows are equal; None: no look that
        is not known yet."""
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        number, row.steps = row.steps, row.steps + 1
        if number in _LOOKS:
            matrices = list(self._matrices(optimizer))
            ids = list(map(id, matrices))
            with torch._C.DisableTorchFunctionSubclass():
                read = [matrix.detach() for matrix in matrices]
            if read:
                self._values.read(read, functools.partial(self._look, row, number, ids))
        said, row.said = row.said, None
        if said is None and not any(map(_Row.looks_again, self._rows.values())):
            self._awake.discard(NAME)
        return said

    def _look(
        self, row: _Row, number: int, ids: list[int], matrices: list[torch.Tensor]
    ) -> None:
        row.look(number, ids, matrices)
        self._awake.add(NAME)

    def _matrices(self, optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
        found = copied = 0
        for parameter in parameters_of(optimizer):
            if type(parameter) is not torch.nn.Parameter or parameter.dim() < 2:
                continue
            if not self._values.reads(parameter):
                continue
            # Few weights a unit may be equal and right: those of one input.
            if len(parameter) < 2 or not 1 < parameter[0].numel() < _ELEMENTS:
                continue
            if not self._values.is_here(parameter):
                if copied + bytes_of(parameter) > MOST:
                    continue
                copied += bytes_of(parameter)
            yield parameter
            found += 1
            if found == _PARAMETERS:
                return


def _alike(values: torch.Tensor) -> torch.Tensor | None:
    """A copy of its first row where all others are equal to it."""
    with torch._C.DisableTorchFunctionSubclass():
        first = values[0]
        if not torch.equal(values[-1], first):
            return None
        if values.numel() > _ELEMENTS or not bool((values == first).all()):
            return None
        return first.clone()
