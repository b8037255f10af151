"""Data that was standardised before it was split.

Means and deviations that are taken over all rows hold something of those that are kept
apart for the evaluation. Columns of all rows then have mean 0 and deviation 1, and those
of the training's share have not.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import Subset, TensorDataset

from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

# Name of the scalar of a loader.
NAME = "loader.scaled_before_split"

_MOST = 1 << 22  # elements
_LEAST = 32  # rows
_COLUMNS = 3
_SHARE = 0.8  # of the columns: others are flags
_EXACT = 1e-4
_FLOATS = ("float32", "float64")
_TYPES = (torch.float32, torch.float64)


class ScaledSplits:
    def __init__(self) -> None:
        # What was read with gradients last, and what was compared.
        self._training: weakref.ref[Any] | None = None
        self._told: WeakIdentityMap[Any, bool] = WeakIdentityMap()

    def pass_begins(self, loader: DataLoader) -> float | None:
        """1: the rows of the training and of this evaluation are standardised together;
        0: those of the training alone; None: neither, or that was said."""
        data = loader.dataset
        if not is_possible_key(data):
            return None
        if torch.is_grad_enabled():
            self._training = weakref.ref(data)
            return None
        training = self._training() if self._training is not None else None
        if training is None or training is data or self._told.get(data):
            return None
        self._told.set(data, True)
        trained, evaluated = _Rows.of(training), _Rows.of(data)
        if trained is None or evaluated is None:
            return None
        if trained.base is evaluated.base:
            return _is_scaled_together(trained.own, trained.table)
        if trained.own.shape[1] != evaluated.own.shape[1]:
            return None
        both = torch.cat((trained.own.double(), evaluated.own.double()))
        return _is_scaled_together(trained.own, both)


def _is_scaled_together(trained: torch.Tensor, both: torch.Tensor) -> float | None:
    alone, together = _are_standardised(trained), _are_standardised(both)
    if alone is None or alone == together:
        return None
    return float(bool(together))


def _are_standardised(rows: torch.Tensor) -> bool | None:
    """None: they are too few, or have hardly any columns that vary."""
    values = rows.double()
    deviations = values.std(0, correction=0)
    varies = deviations > _EXACT
    if len(values) < _LEAST or int(varies.sum()) < _COLUMNS:
        return None
    centred = values.mean(0)[varies].abs() < _EXACT
    # Of the rows, or as an estimate.
    estimate = (len(values) / (len(values) - 1)) ** 0.5
    one = torch.minimum((deviations - 1).abs(), (deviations * estimate - 1).abs())
    return bool((centred & (one[varies] < _EXACT)).double().mean() >= _SHARE)


class _Rows(NamedTuple):
    """Of a data set, or of a part of one."""

    base: Any
    table: torch.Tensor  # float[all rows of the base, columns]
    own: torch.Tensor  # float[rows, columns]

    @classmethod
    def of(cls, data: Any) -> _Rows | None:
        parts = []
        while type(data) is Subset:
            parts.append(data.indices)
            data = data.dataset
        table = _table(data)
        if table is None:
            return None
        own = table
        try:
            for indices in reversed(parts):
                own = own[torch.as_tensor(indices, dtype=torch.int64)]
        except (IndexError, TypeError, ValueError):  # no numbers of rows
            return None
        return cls(data, table, own)


def _table(data: Any) -> torch.Tensor | None:
    """The inputs that it holds in memory: its first table of floats, a row a sample."""
    if type(data) is TensorDataset:
        values: list[Any] = list(data.tensors[:1])
    else:
        values = list(getattr(data, "__dict__", {}).values())
    for value in values:
        if _is_array(value) and len(value) == _size(data):
            return torch.from_numpy(value.astype("float64"))
        if _is_tensor(value) and len(value) == _size(data):
            return torch.Tensor.detach(value)
    return None


def _is_array(value: Any) -> bool:
    if type(value).__module__ != "numpy" or type(value).__name__ != "ndarray":
        return False
    return value.ndim == 2 and str(value.dtype) in _FLOATS and value.size <= _MOST


def _is_tensor(value: Any) -> bool:
    if type(value) is not torch.Tensor or not value.is_cpu or value.dim() != 2:
        return False
    plain = value.layout == torch.strided and value.dtype in _TYPES
    return plain and value.numel() <= _MOST


def _size(data: Any) -> int | None:
    try:
        return len(data)
    except (NotImplementedError, TypeError):
        return None
