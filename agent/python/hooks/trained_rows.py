"""Evaluations of the very samples that are trained with, from another data set object.

Two data sets that were made of the same file, or drawn with the same seed, hold the same
samples: what is measured is how well the model remembers. Told by the contents of
batches; parts of one data set are told by their indices (shared_samples.py), and one
that is trained with and evaluated as a whole is left alone. Windows of a series that
overlap hold the same points: drawn apart at random, most of them are evaluated beside
one that is trained with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.batch_tensors import tensors_of
from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.subsets import whole_of
from _traincheck.windows import windows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.utils.data import DataLoader

    from _traincheck.lineages import Lineages

# Names of the scalars of a loader.
NAME = "loader.evaluates_trained_rows"
OVERLAP = "loader.windows_overlap"

_BATCHES = 32  # of a data set that are looked at
_ROWS, _ELEMENTS = 64, 4096  # of a batch
_DISTINCT, _AMONG = 16, 64  # values of a row: others may be equal by chance
_LEAST = 4  # rows
_SHARE = 1 / 4  # of an evaluated batch
_WEIGHTS = 4  # with optimizers of their own
_MOST = 8192  # rows that are remembered
_MOST_PIECES = 1 << 16  # and pieces of windows
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
        self.overlap_said = False


class _Batch:
    """The rows of one, and the pieces of the windows that they are."""

    def __init__(self, batch: Any) -> None:
        self.rows = list(_hashes(batch))
        self.windows = list(windows(batch))


class _Trained:
    """What the weights of one optimizer have seen."""

    def __init__(self) -> None:
        self.rows: set[int] = set()  # hashes
        self.pieces: set[int] = set()  # of windows
        self.whole: set[int] = set()  # their first and last pieces, together

    def add(self, batch: _Batch) -> None:
        if len(self.rows) < _MOST:
            self.rows.update(batch.rows)
        if len(self.pieces) < _MOST_PIECES:
            for window in batch.windows:
                self.pieces.update(window)
                self.whole.add(hash((window[0], window[-1])))

    def overlaps(self, window: list[int]) -> bool:
        """With others that are trained with, before and behind it: one that begins
        where the training's share ends has none behind it."""
        first, last = window[0], window[-1]
        if hash((first, last)) in self.whole:
            return False
        return first in self.pieces and last in self.pieces


class TrainedRows:
    def __init__(self, lineages: Lineages) -> None:
        self._lineages = lineages
        self._lineage = 0
        self._data: WeakIdentityMap[Any, _Data] = WeakIdentityMap()
        # By the number of the weights: models that are trained in turn have their own.
        self._trained: dict[int, _Trained] = {}
        self._stepped: set[int] = set()  # those of the last pass that trained
        self._is_new = False  # has another one begun?
        # Number and data set of the loader that is read, and the batch it gave last.
        self._loader = 0
        self._now: _Data | None = None
        self._last: _Batch | None = None

    def pass_begins(self, loader: DataLoader, number: int) -> None:
        self._loader, self._now, self._last = number, None, None
        self._is_new = self._is_new or torch.is_grad_enabled()
        data = whole_of(loader.dataset)
        if is_possible_key(data):
            self._now = self._data.get(data) or _Data()
            self._data.set(data, self._now)

    def fetched(
        self, number: int, batch: Any, trained: bool
    ) -> Iterator[tuple[str, float]]:
        """trained: with the batch before. 1: a quarter of this batch or more, which is
        evaluated, is trained with elsewhere, or overlaps with what is trained with."""
        data, before = self._now, self._last
        if data is None or number != self._loader:
            return
        self._last = None
        if before is not None and trained:
            data.is_trained = True
            self._remember(before)
        if data.batches == _BATCHES:
            return
        data.batches += 1
        now = _Batch(batch)
        if torch.is_grad_enabled():
            self._last = now
        else:
            yield from self._compare(data, now)

    def _remember(self, batch: _Batch) -> None:
        if self._lineage != self._lineages.count:  # another model has seen nothing yet
            self._lineage = self._lineages.count
            self._trained.clear()
            self._is_new = True
        if self._is_new:
            self._is_new = False
            self._stepped.clear()
        number = self._lineages.stepped_now
        if number in self._trained or len(self._trained) < _WEIGHTS:
            self._trained.setdefault(number, _Trained()).add(batch)
            self._stepped.add(number)

    def _compare(self, data: _Data, batch: _Batch) -> Iterator[tuple[str, float]]:
        if self._lineages.stepped_now not in self._stepped:
            return
        now = [self._trained[number] for number in self._stepped]
        rows, has_rows = batch.rows, any(trained.rows for trained in now)
        if not (data.is_trained or data.said) and has_rows and len(rows) >= _LEAST:
            data.said = True
            known = sum(any(row in trained.rows for trained in now) for row in rows)
            yield NAME, float(known >= max(_LEAST, _SHARE * len(rows)))
        count = len(batch.windows)
        has_pieces = any(trained.pieces for trained in now)
        if not data.overlap_said and has_pieces and count >= _LEAST:
            data.overlap_said = True
            known = sum(
                any(trained.overlaps(window) for trained in now)
                for window in batch.windows
            )
            yield OVERLAP, float(known >= max(_LEAST, _SHARE * count))


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
