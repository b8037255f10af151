"""Data that was standardised before it was split.

Means and deviations that are taken over all rows hold something of those that are kept
apart for the evaluation. Columns of all rows then have mean 0 and deviation 1, and those
of the training's share have not. Series that are cut into windows have more rows than
samples; they are known by the name under which the data sets of one class hold them.
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
_MOST_PARTS = 3  # that were evaluated before
_COLUMNS = 3
_SHARE = 0.8  # of the columns: others are flags
_EXACT = 1e-4
_FLOATS = ("float32", "float64")
_TYPES = (torch.float32, torch.float64)


class ScaledSplits:
    def __init__(self) -> None:
        # What was read with gradients last, and what was compared.
        self._training: weakref.ref[Any] | None = None
        self._evaluated: list[weakref.ref[Any]] = []  # last ones
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
        if trained is None and evaluated is None:
            return self._of_series(training, data)
        if trained is None or evaluated is None:
            return None
        if trained.base is evaluated.base:
            return _is_scaled_together(trained.own, trained.table)
        if trained.own.shape[1] != evaluated.own.shape[1]:
            return None
        both = torch.cat((trained.own.double(), evaluated.own.double()))
        return _is_scaled_together(trained.own, both)

    def _of_series(self, training: Any, data: Any) -> float | None:
        """Of this evaluation, and of all data that was evaluated so far."""
        if type(training) is not type(data):
            return None
        self._evaluated = self._evaluated[-_MOST_PARTS:] + [weakref.ref(data)]
        former = [one() for one in self._evaluated]
        parts = [one for one in former if type(one) is type(data)]
        name, trained = _series(training, data)
        if trained is None:
            return None
        others = [_named(one, name) for one in parts]
        fit = [one for one in others if one is not None and _are_apart(one, trained)]
        if not fit or len(fit) != len(others):
            return None  # one holds all of the series
        said = [
            _is_scaled_together(trained, torch.cat([trained, *some]))
            for some in (fit[-1:], fit)
        ]
        known = [one for one in said if one is not None]
        return max(known) if known else None


def _are_apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Are they tables with the same columns, and neither the other one again?"""
    alike = one.shape[1] == other.shape[1] and one.dtype == other.dtype
    return alike and not (one.shape == other.shape and bool((one == other).all()))


def _series(training: Any, data: Any) -> tuple[str, torch.Tensor | None]:
    """What both hold under one name: tables of at least a row a sample."""
    for name in getattr(training, "__dict__", {}):
        trained, other = _named(training, name), _named(data, name)
        if trained is not None and other is not None and _are_apart(trained, other):
            return name, trained
    return "", None


def _named(data: Any, name: str) -> torch.Tensor | None:
    value, size = getattr(data, "__dict__", {}).get(name), _size(data)
    table = _floats(value)
    return table if table is not None and len(table) >= (size or _MOST) else None


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
        table = _floats(value)
        if table is not None and len(table) == _size(data):
            return table
    return None


def _floats(value: Any) -> torch.Tensor | None:
    """A table of floats; None: it is something else."""
    if _is_array(value):
        return torch.from_numpy(value.astype("float64"))
    return torch.Tensor.detach(value) if _is_tensor(value) else None


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
