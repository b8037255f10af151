"""Data sets that change what they hold by handing it out.

A transform that works in place on an array of the data set (`image -= mean`) is
applied once more in each epoch. Looked at are the rows that a fetch reads, and the parts
of samples that lie in a list, before and after it: arrays that are filled as they are
first read, and those that only others write (a replay buffer), are no matter of this, nor
are numbers about a sample that are not a part of it (how often it was read). Whole numbers
(tokens, of which some are masked) are looked for in the batch, and are no new draw as long
as most of them stay. Workers change copies of their own.
"""

from __future__ import annotations

import dataclasses
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import Subset

from _traincheck.batch_tensors import tensors_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from traincheck_core import Core

_FETCHES = 16  # of a data set
_ROWS = 4  # of a fetch
_ELEMENTS = 512  # of a row
_HABIT = 2  # fetches that wrote
_ATTRIBUTES = 64  # of a data set
_PARTS = 8  # of a sample in a list


class _Row(NamedTuple):
    array: Any
    number: int | None  # None: all of it is one sample's
    place: int  # of its sample in the batch
    content: bytes
    sample: dict[Any, Any] | None  # that it is an entry of
    entries: int  # of that


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
        changed = [_is_changed(row, batch) for row in before]
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
    for held in list(getattr(data, "__dict__", {}).values())[:_ATTRIBUTES]:
        is_list = type(held) in (list, tuple) and len(held) == samples
        if not is_list and not (_kind_of(held, True) and _has_rows(held, samples)):
            continue
        for place, index in enumerate(indices[:_ROWS]):
            if not isinstance(index, int) or not 0 <= index < len(held):
                continue
            if not is_list:
                yield _Row(held, index, place, _content(held, index), None, 0)
                continue
            sample = held[index]
            keeps = sample if type(sample) is dict else None
            for part in _parts_of(sample):
                content = _content(part, None)
                yield _Row(part, None, place, content, keeps, len(keeps or ()))


def _parts_of(sample: Any) -> Iterator[Any]:
    """Arrays, and lists of whole numbers."""
    if _kind_of(sample):
        yield sample
        return
    parts: Any = ()
    if type(sample) is dict:
        parts = sample.values()
    elif type(sample) in (list, tuple):
        parts = sample
    elif issubclass(type(sample), tuple) or dataclasses.is_dataclass(type(sample)):
        parts = sample if issubclass(type(sample), tuple) else _fields_of(sample)
    yield from (one for one in islice(parts, _PARTS) if _kind_of(one))


def _fields_of(sample: Any) -> Iterable[Any]:
    fields: dict[str, Any] = getattr(sample, "__dict__", {})
    return list(fields.values())


def _kind_of(value: Any, has_rows: bool = False) -> str | None:
    """Of an array in this process's memory: "f" (of floating point numbers, or a
    picture) or "i" (of whole numbers). None: it is neither, or has no dimension.
    has_rows: one for each sample."""
    if type(value) is torch.Tensor:
        if not value.is_cpu or value.layout != torch.strided or value.dim() == 0:
            return None
        if value.is_floating_point() or _is_picture(value, torch.uint8, has_rows):
            return "f"
        return None if value.is_complex() or value.dtype == torch.bool else "i"
    if type(value) is list:
        few = value[:_ELEMENTS]
        return "i" if few and all(type(one) is int for one in few) else None
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.ndim == 0:
        return None
    if value.dtype.kind == "f" or _is_picture(value, "uint8", has_rows):
        return "f"
    return "i" if value.dtype.kind in "iu" else None


def _is_picture(value: Any, byte: Any, has_rows: bool) -> bool:
    """Or several. They are handed out as other numbers."""
    return bool(value.dtype == byte and value.ndim > 1 + has_rows)


def _has_rows(array: Any, samples: int) -> bool:
    """One for each sample, or windows of them? Others are room to work in."""
    if type(array) is list:
        return False
    return len(array) == samples or (array.ndim > 1 and len(array) > samples)


def _is_changed(row: _Row, batch: Any) -> bool:
    """By the fetch, and not to prepare the sample once for all?"""
    now = _content(row.array, row.number)
    if not any(row.content) or row.content == now:
        return False
    if row.sample is not None and len(row.sample) != row.entries:
        return False
    if _kind_of(row.array, row.number is not None) == "f":
        return not _is_number(row) or _is_handed_out(row, batch)
    return _keeps_most(row.content, now) and _are_handed_out(row, now, batch)


def _is_number(row: _Row) -> bool:
    """Is it one number, which may count how often a sample was read?"""
    one = row.array if row.number is None else row.array[:1]
    return bool(one.reshape(-1).shape[0] <= 1)


def _keeps_most(before: bytes, now: bytes) -> bool:
    """Of several whole numbers."""
    if len(before) != len(now):
        return False
    both = list(zip(memoryview(before).cast("d"), memoryview(now).cast("d")))
    return 0 < 2 * sum(one != other for one, other in both) <= len(both)


def _are_handed_out(row: _Row, now: bytes, batch: Any) -> bool:
    """Does its sample begin with the whole numbers, as the loader gives it?"""
    numbers = torch.tensor(memoryview(now).cast("d").tolist(), dtype=torch.float64)
    for tensor in tensors_of(batch):
        if tensor.dim() > 1 and row.place < len(tensor):
            few = tensor[row.place].reshape(-1)[: len(numbers)].double()
            if torch.equal(few, numbers):
                return True
    return False


def _is_handed_out(row: _Row, batch: Any) -> bool:
    """Is the number a part of its sample, as the loader gives it?"""
    one = row.array if row.number is None else row.array[row.number]
    value = float(one.reshape(-1)[0])
    for tensor in tensors_of(batch):
        if tensor.is_floating_point() and tensor.dim() > 0 and row.place < len(tensor):
            few = tensor[row.place].reshape(-1)[:_ELEMENTS].double()
            if bool(few.isclose(torch.tensor(value, dtype=torch.float64)).any()):
                return True
    return False


def _content(array: Any, row: int | None) -> bytes:
    """Zeros where nothing has been written yet. Of much, some from all over it."""
    one = array if row is None else array[row]
    if type(one) is list:
        few = torch.tensor([float(number) for number in one[:_ELEMENTS]])
        return bytes(few.double().numpy().tobytes())
    flat = one.reshape(-1)
    whole = (
        _kind_of(array, row is not None) == "i"
    )  # of which the beginning is compared with the batch
    few = flat[:: 1 if whole else max(1, flat.shape[0] // _ELEMENTS)][:_ELEMENTS]
    if not isinstance(few, torch.Tensor):
        few = torch.from_numpy(few.astype("float64"))
    return bytes(few.detach().double().nan_to_num().numpy().tobytes())
