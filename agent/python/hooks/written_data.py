"""Data sets that change what they hold by handing it out.

A transform that works in place on an array of the data set (`image -= mean`) is
applied once more in each epoch. Looked at are the rows that a fetch reads, before and
after it: arrays that are filled as they are first read, and those that only others
write (a replay buffer), are no matter of this, nor are numbers about a sample that are
not a part of it (how often it was read). Workers change copies of their own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import Subset

from _traincheck.batch_tensors import tensors_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traincheck_core import Core

_FETCHES = 16  # of a data set
_ROWS = 4  # of a fetch
_ELEMENTS = 512  # of a row
_HABIT = 2  # fetches that wrote


class _Row(NamedTuple):
    array: Any
    number: int
    place: int  # of its sample in the batch
    content: bytes


class _Seen:
    """One data set."""

    def __init__(self) -> None:
        self.fetches = 0
        self.writing = 0
        self.before: list[_Row] = []
        self.said: float | None = None


class WrittenData:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen: WeakIdentityMap[Any, _Seen] = WeakIdentityMap()

    def fetches(self, data: Any, indices: Any) -> None:
        """Called before a fetch in this process."""
        if torch.utils.data.get_worker_info() is not None:
            return  # nobody asks there, and what is kept would stay
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

    def fetched(self, data: Any, loader: int, batch: Any) -> None:
        """loader: number of the object. Called after it."""
        seen = self._seen.get(data)
        if seen is None or not seen.before:
            return
        before, seen.before = seen.before, []
        changed = [
            any(row.content)
            and row.content != _content(row.array, row.number)
            and (not _is_number(row.array) or _is_handed_out(row, batch))
            for row in before
        ]
        seen.writing += any(changed)
        said = float(seen.writing >= _HABIT)
        if said != seen.said:
            core = self._core
            core.record_scalar(loader, core.POINT_FETCH, 0, "loader.writes_data", said)
            seen.said = said


def _rows(data: Any, indices: list[Any]) -> Iterator[_Row]:
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
        for place, index in enumerate(indices[:_ROWS]):
            if isinstance(index, int) and 0 <= index < len(array):
                yield _Row(array, index, place, _content(array, index))


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


def _is_number(array: Any) -> bool:
    """Is each of its rows one number, which may count how often a sample was read?"""
    return bool(array[:1].reshape(-1).shape[0] <= 1)


def _is_handed_out(row: _Row, batch: Any) -> bool:
    """Is the number a part of its sample, as the loader gives it?"""
    value = float(row.array[row.number].reshape(-1)[0])
    for tensor in tensors_of(batch):
        if tensor.is_floating_point() and tensor.dim() > 0 and row.place < len(tensor):
            few = tensor[row.place].reshape(-1)[:_ELEMENTS].double()
            if bool(few.isclose(torch.tensor(value, dtype=torch.float64)).any()):
                return True
    return False


def _content(array: Any, row: int) -> bytes:
    """Zeros where nothing has been written yet."""
    few = array[row].reshape(-1)[:_ELEMENTS]
    if not isinstance(few, torch.Tensor):
        few = torch.from_numpy(few.astype("float64"))
    return bytes(few.detach().double().nan_to_num().numpy().tobytes())
