"""Evaluations of the very samples that are trained with, from another data set object.

Two data sets that were made of the same file, or drawn with the same seed, hold the same
samples: what is measured is how well the model remembers. Told by the contents of
batches; parts of one data set are told by their indices (shared_samples.py), and one
that is trained with and evaluated as a whole is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.batch_tensors import tensors_of
from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.utils.data import DataLoader

# Name of the scalar of a loader.
NAME = "loader.evaluates_trained_rows"

_BATCHES = 32  # of a data set that are looked at
_ROWS, _ELEMENTS = 64, 4096  # of a batch
_DISTINCT, _AMONG = 16, 64  # values of a row: others may be equal by chance
_LEAST = 4  # rows
_SHARE = 1 / 4  # of an evaluated batch
_MOST = 8192  # rows that are remembered
_TYPES = (
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
)


class _Data:
    """One data set."""

    def __init__(self) -> None:
        self.batches = 0
        self.is_trained = False
        self.said = False


class TrainedRows:
    def __init__(self) -> None:
        self._data: WeakIdentityMap[Any, _Data] = WeakIdentityMap()
        self._trained: set[int] = set()  # hashes of rows
        # Number and data set of the loader that is read, and the batch it gave last.
        self._loader = 0
        self._now: _Data | None = None
        self._last: list[int] = []

    def pass_begins(self, loader: DataLoader, number: int) -> None:
        self._loader, self._now, self._last = number, None, []
        data = loader.dataset
        while isinstance(data, torch.utils.data.Subset):
            data = data.dataset
        if is_possible_key(data):
            self._now = self._data.get(data) or _Data()
            self._data.set(data, self._now)

    def fetched(self, number: int, batch: Any, trained: bool) -> float | None:
        """trained: with the batch before. 1: a quarter of that batch or more, which was
        evaluated, is trained with elsewhere; None: it is not asked."""
        data, before = self._now, self._last
        if data is None or number != self._loader:
            return None
        said = None
        if trained:
            data.is_trained = True
            if len(self._trained) < _MOST:
                self._trained.update(before)
        elif before and not torch.is_grad_enabled():
            said = self._compare(data, before)
        self._last = []
        if data.batches < _BATCHES:
            data.batches += 1
            self._last = list(_hashes(batch))
        return said

    def _compare(self, data: _Data, rows: list[int]) -> float | None:
        if data.is_trained or data.said or not self._trained or len(rows) < _LEAST:
            return None
        data.said = True
        known = sum(row in self._trained for row in rows)
        return float(known >= max(_LEAST, _SHARE * len(rows)))


def _hashes(batch: Any) -> Iterator[int]:
    """Of the rows of its first tensor that has several."""
    for tensor in tensors_of(batch):
        if tensor.dim() < 2 or len(tensor) < _LEAST or tensor.dtype not in _TYPES:
            continue
        rows = tensor[:_ROWS].reshape(min(len(tensor), _ROWS), -1)[:, :_ELEMENTS]
        for row in rows.resolve_neg().contiguous():
            if len(set(row[:_AMONG].tolist())) >= _DISTINCT:
                yield hash(row.view(torch.uint8).numpy().tobytes())
        return
