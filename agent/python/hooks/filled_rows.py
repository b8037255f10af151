"""Rows of a model's input that hold one and the same number in all columns.

    self.observations[self.pos, unit] = obs[unit]       # one number, not a row

Assigning a number to a row of a buffer fills the row, and raises nothing. The model is
trained with samples that have lost all but one of their numbers, and later given others.
Looked at is what a model is given in training: floats of several columns, where rows
differ from each other. Times that are repeated to the width of a sample are given beside
the sample; whole numbers that are repeated are classes or steps.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import torch

from _traincheck import transforms
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues

# Name of the scalar of an optimizer.
NAME = "opt.rows_of_one_number"

_MODELS = 32
_LAST = 1024  # forward of a model that may be looked at
_ROWS, _COLUMNS = 8, 4  # at least
_ELEMENTS = 1 << 16  # that are read
_TENSORS = 8  # of a call
_DEPTH = 2  # containers within each other
_FEWEST = 2  # looks


class _Model:
    def __init__(self) -> None:
        self.forwards = 0
        self.filled = 0  # looks at which all rows were
        self.varies = False  # did numbers of a row differ at a look?

    def finding(self) -> float | None:
        if self.varies:
            return 0.0
        return 1.0 if self.filled >= _FEWEST else None


class FilledRows:
    def __init__(self, values: DeviceValues, awake: Awake) -> None:
        self._values = values
        self._awake = awake
        self._models: WeakIdentityMap[torch.nn.Module, _Model] = WeakIdentityMap()
        self._found: float | None = None  # since the last step

    def forward_begins(self, args: Args, kwargs: Kwargs) -> None:
        """Called at outermost ones that train, with the model as the first argument."""
        model = self._models.get(args[0])
        if model is None:
            if len(self._models) >= _MODELS:
                return
            model = _Model()
            self._models.set(args[0], model)
        number = model.forwards
        model.forwards += 1
        if number > _LAST or not looks_at(number) or transforms.running():
            return
        given = _tensors((args[1:], kwargs), _DEPTH + 1)
        found = self._are_filled(list(islice(given, _TENSORS + 1)))
        if found is None:
            return
        model.filled += found
        model.varies = model.varies or not found
        finding = model.finding()
        if finding is not None:
            self._found = max(finding, self._found or 0.0)
            self._awake.add(NAME)

    def optimizer_steps(self) -> float | None:
        """1: a model was given rows of one number each, and never others; None: since
        the last step no model was looked at that is given rows of several columns."""
        found, self._found = self._found, None
        self._awake.discard(NAME)
        return found

    def _are_filled(self, given: list[torch.Tensor]) -> bool | None:
        """None: they do not say, or cannot be read."""
        if len(given) > _TENSORS or not all(map(self._reads, given)):
            return None
        tables = [(one, _fills(one)) for one in given if _is_table(one)]
        if not any(fills for _, fills in tables):
            return False if any(fills is False for _, fills in tables) else None
        filled = [one for one, fills in tables if fills]
        others = [one for one in given if all(one is not other for other in filled)]
        return None if any(map(_differs, others)) else True

    def _reads(self, tensor: torch.Tensor) -> bool:
        """Results of other models are not what is read from data."""
        plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided
        return plain and not tensor.requires_grad and self._values.is_here(tensor)


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    """Also those in lists, tuples and dictionaries."""
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        yield value
    elif depth > 0 and issubclass(kind, (list, tuple, dict)):
        items = dict.values(value) if issubclass(kind, dict) else value
        for item in islice(items, _TENSORS + 1):
            yield from _tensors(item, depth - 1)


def _is_table(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.dim() != 2:
        return False
    rows, columns = tensor.shape
    return bool(rows >= _ROWS and _COLUMNS <= columns <= _ELEMENTS // _ROWS)


def _fills(table: torch.Tensor) -> bool | None:
    """Is each row one number in all columns, while rows differ? None: the program says
    so itself (expand()), or the numbers may be classes, or a mask."""
    if 0 in table.stride():
        return None
    few = table.detach()[: _ELEMENTS // table.shape[1]]
    if not bool((few == few[:, :1]).all()):
        return False
    numbers = few[:, 0]
    if bool((numbers == numbers.round()).all()) or len(numbers.unique()) < _ROWS:
        return None
    return True


def _differs(tensor: torch.Tensor) -> bool:
    """Between samples?"""
    few = tensor.detach().reshape(-1)[:_ELEMENTS]
    return bool((few != few[:1]).any())
