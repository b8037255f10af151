"""Which rows of a table a data set holds that was cut out of it.

`TensorDataset(x[rows], y[rows])` is a data set of its own, as is a user's class that is
given such a piece. Which rows they are is told by their contents; of equal rows it cannot
be told.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.utils.data import TensorDataset

from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_LEAST, _MOST = 4, 16_384  # rows of a data set
_ELEMENTS = 64  # of a row
_ALL = 1 << 17  # rows that are looked at in a process
_ATTRIBUTES = 32  # of a data set


class CutRows(NamedTuple):
    kind: tuple[Any, ...]  # of a row: those of two tables differ
    hashes: frozenset[int]


class Cuts:
    def __init__(self) -> None:
        self._rows = 0  # that were looked at
        self._known: WeakIdentityMap[Any, CutRows | None] = WeakIdentityMap()
        self._seen: WeakIdentityMap[Any, bool] = WeakIdentityMap()

    def rows_of(self, data: Any) -> CutRows | None:
        """None: it has no table of different rows, or too much was looked at."""
        if not is_possible_key(data):
            return None
        if not self._seen.get(data):
            self._seen.set(data, True)
            self._known.set(data, self._look(data))
        return self._known.get(data)

    def _look(self, data: Any) -> CutRows | None:
        table = next(_tables(data), None)
        if table is None or not _LEAST <= len(table) <= _MOST:
            return None
        if self._rows + len(table) > _ALL:
            return None
        self._rows += len(table)
        hashes = frozenset(_hashes(table))
        if len(hashes) < len(table):
            return None
        return CutRows((type(data), table.shape[1:], table.dtype), hashes)


def _tables(data: Any) -> Iterator[torch.Tensor]:
    """Tensors and arrays of two dimensions or more that it has."""
    values: Any = getattr(data, "__dict__", None)
    if type(values) is not dict or len(values) > _ATTRIBUTES:
        return
    if type(data) is TensorDataset:
        values = dict(enumerate(data.tensors))
    for value in values.values():
        table = _table(value)
        if table is not None and table.dim() > 1 and table[:1].numel() > 1:
            yield table


def _table(value: Any) -> torch.Tensor | None:
    if type(value) is torch.Tensor:
        is_here = value.is_cpu and value.layout == torch.strided
        return value.detach() if is_here and not value.is_complex() else None
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return None
    # Views that are mirrored and bytes in another order are no tensors as they are.
    is_plain = (
        value.flags.c_contiguous and value.dtype.isnative and value.flags.writeable
    )
    known = value.dtype.name in ("float32", "float64", "int32", "int64", "uint8")
    return torch.from_numpy(value) if is_plain and known else None


def _hashes(table: torch.Tensor) -> Iterator[int]:
    rows = table.reshape(len(table), -1)
    # From all of a row: pictures have equal borders.
    few = rows[:, :: max(1, rows.shape[1] // _ELEMENTS)][:, :_ELEMENTS]
    plain = few.resolve_neg().contiguous()
    size = plain.shape[1] * plain.element_size()
    content = plain.view(torch.uint8).numpy().tobytes()
    for begin in range(0, len(content), size):
        yield hash(content[begin : begin + size])
