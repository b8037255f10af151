"""Data sets that change what they hold by handing it out.

A transform that works in place on an array of the data set (`image -= mean`) is
applied once more in each epoch. Looked at are the rows that a fetch reads, before and
after it: arrays that are filled as they are first read, and those that only others
write (a replay buffer), are no matter of this. Workers change copies of their own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Subset

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from traincheck_core import Core

_FETCHES = 16  # of a data set
_ROWS = 4  # of a fetch
_ELEMENTS = 512  # of a row
_HABIT = 2  # fetches that wrote

_Rows = list[tuple[object, int, bytes]]  # array, row, content


class _Seen:
    """One data set."""

    def __init__(self) -> None:
        self.fetches = 0
        self.writing = 0
        self.before: _Rows = []
        self.said: float | None = None


class WrittenData:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen: WeakIdentityMap[Any, _Seen] = WeakIdentityMap()

    def fetches(self, data: Any, indices: Any) -> None:
        """Called before a fetch in this process."""
        if not isinstance(indices, list) or not isinstance(
            data, torch.utils.data.Dataset
        ):
            return
        seen = self._seen.get(data)
        if seen is None:
            seen = _Seen()
            self._seen.set(data, seen)
        seen.before = []
        if seen.fetches < _FETCHES:
            seen.fetches += 1
            seen.before = list(_rows(data, indices))

    def fetched(self, data: Any, loader: int) -> None:
        """loader: number of the object. Called after it."""
        seen = self._seen.get(data)
        if seen is None or not seen.before:
            return
        before, seen.before = seen.before, []
        changed = [
            any(content) and content != _content(array, row)
            for array, row, content in before
        ]
        seen.writing += any(changed)
        said = float(seen.writing >= _HABIT)
        if said != seen.said:
            core = self._core
            core.record_scalar(loader, core.POINT_FETCH, 0, "loader.writes_data", said)
            seen.said = said


def _rows(data: Any, indices: list[Any]) -> Iterator[tuple[object, int, bytes]]:
    """What the data set holds of these samples, in arrays of one row a sample."""
    while type(data) is Subset:
        indices = [data.indices[index] for index in indices]
        data = data.dataset
    try:
        samples = len(data)
    except TypeError:  # a sampler of the user's knows how many there are
        return
    for array in list(getattr(data, "__dict__", {}).values()):
        if not _is_array(array) or not _has_rows(array, samples):
            continue
        for index in indices[:_ROWS]:
            if isinstance(index, int) and 0 <= index < len(array):
                yield array, index, _content(array, index)


def _is_array(value: Any) -> bool:
    """Of floating point numbers, in this process's memory."""
    if type(value) is torch.Tensor:
        plain = value.is_cpu and value.layout == torch.strided and value.dim() > 0
        return bool(plain and value.is_floating_point())
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return False
    return bool(value.ndim > 0 and value.dtype.kind == "f")


def _has_rows(array: Any, samples: int) -> bool:
    """One for each sample, or windows of them? Others are room to work in."""
    return len(array) == samples or (array.ndim > 1 and len(array) > samples)


def _content(array: Any, row: int) -> bytes:
    """Zeros where nothing has been written yet."""
    few = array[row].reshape(-1)[:_ELEMENTS]
    if not isinstance(few, torch.Tensor):
        few = torch.from_numpy(few.astype("float64"))
    return bytes(few.detach().double().nan_to_num().numpy().tobytes())
