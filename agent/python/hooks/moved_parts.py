"""Samples of a picture and a map of it, of which one is flipped or turned alone.

A data set that holds pictures and their masks augments both: by one draw, or the mask
fits the picture no more. What a sample was before, the data set's own arrays say: each
part of a batch is compared with its row there in the eight ways in which a square can
lie. That two arrays belong together is seen from their rows, too: a picture has more in
common with its own map than with those of others.
"""

from __future__ import annotations

import itertools
import numbers
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import Dataset, Subset

from _traincheck.batch_tensors import tensors_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterator

# Name of the scalar.
NAME = "loader.moves_parts_apart"

_BATCHES = 16  # of a data set, and the first of a pass
_ROWS = 8  # of a batch
_PARTS = 4  # of a sample, and of what the data set holds
_DEPTH = 3  # data sets within each other
_SIDE = 8  # pixels; a picture has more
_LARGEST = 1 << 20  # values of a picture
_COMMON = 32  # pixels of a side that pictures are compared by
_CHANNELS = 4
_ALIKE = 0.9  # correlation of a part with its row, and of nothing else
_APART = 0.05  # by how much less a way fits that is none
_HABIT = 2  # samples that fit no more
_OWN = 0.1  # by how much more a picture has in common with its own map
_PAIRS = 4  # rows from which that is seen


class _Source(NamedTuple):
    """An array of the data set, or the parts at one place of its samples."""

    values: Any
    key: Any  # of a part; None: the values themselves

    def row(self, index: int) -> torch.Tensor | None:
        if not 0 <= index < len(self.values):
            return None
        value = self.values[index]
        if self.key is None:
            return _picture(value)
        if type(value) is dict:
            return _picture(value.get(self.key))
        is_there = type(value) is tuple and self.key in range(len(value))
        return _picture(value[self.key]) if is_there else None


class _Seen:
    """One data set."""

    def __init__(self) -> None:
        self.batches = 0
        self.apart = 0
        self.together = 0


class MovedParts:
    def __init__(self) -> None:
        self._seen: WeakIdentityMap[Any, _Seen] = WeakIdentityMap()
        # Of a pass over a loader: the samples of its batches, by their numbers. Workers
        # are given several before the first one comes.
        self._indices: WeakIdentityMap[Any, dict[int, list[int]]] = WeakIdentityMap()

    def asks(self, iterator: Any, indices: Any) -> None:
        """Called with the samples of the pass's next batch."""
        number = getattr(iterator, "_send_idx", iterator._num_yielded)
        asked = self._indices.get(iterator)
        if asked is None or number == 0:
            asked = {}
            self._indices.set(iterator, asked)
        if number >= _BATCHES or not isinstance(indices, list):
            return
        few = indices[:_ROWS]
        if few and all(type(index) is int for index in few):
            asked[number] = few

    def fetched(self, iterator: Any, batch: Any) -> float | None:
        """Called when it has come. 1: parts of samples do not fit any more; 0: they were
        moved together; None: not known."""
        asked = self._indices.get(iterator)
        if not asked or not getattr(iterator, "_in_order", True):
            return None
        indices = asked.pop(iterator._num_yielded - 1, None)
        data = getattr(iterator, "_dataset", None)
        if indices is None or not isinstance(data, Dataset):
            return None
        seen = self._seen.get(data)
        if seen is None:
            seen = _Seen()
            self._seen.set(data, seen)
        if seen.batches == _BATCHES:
            return None
        seen.batches += 1
        return self._look(seen, data, indices, batch)

    def _look(
        self, seen: _Seen, data: Any, indices: list[int], batch: Any
    ) -> float | None:
        parts = list(_parts(batch, len(indices)))
        if len(parts) < 2:
            return None
        sources = list(itertools.islice(_sources(data, indices, _DEPTH), _PARTS))
        pairs = [
            (first, second)
            for first, second in itertools.combinations(range(len(sources)), 2)
            if _belong_together(sources[first], sources[second])
        ]
        for place in range(len(indices) if pairs else 0):
            ways = _ways_of([part[place] for part in parts], sources, place)
            for first, second in pairs:
                if first in ways and second in ways:
                    common = ways[first] & ways[second]
                    seen.apart += not common
                    seen.together += bool(common) and 0 not in common
        if seen.apart >= _HABIT:
            return 1.0
        return 0.0 if seen.together and not seen.apart else None


class _Rows:
    """Rows of one source, as they lie and in the other ways."""

    def __init__(self, rows: list[torch.Tensor | None]) -> None:
        self.rows = rows
        self._ways: dict[int, list[torch.Tensor]] = {}

    def ways(self, place: int) -> list[torch.Tensor]:
        if place not in self._ways:
            row = self.rows[place]
            self._ways[place] = [] if row is None else list(_ways(row))
        return self._ways[place]


def _sources(data: Any, indices: list[int], depth: int) -> Iterator[_Rows]:
    """Of pictures that the data set, or one within it, holds."""
    while type(data) is Subset:
        known = data.indices
        if not all(0 <= index < len(known) for index in indices):
            return
        samples = [known[index] for index in indices]
        if isinstance(known, torch.Tensor):
            samples = [sample.item() for sample in samples]
        if not all(isinstance(sample, numbers.Integral) for sample in samples):
            return
        indices = [int(sample) for sample in samples]
        data = data.dataset
    inner = []
    for value in list(getattr(data, "__dict__", {}).values()):
        if isinstance(value, Dataset):
            inner.append(value)
            continue
        several = type(value) is tuple and len(value) <= _PARTS
        for array in value if several else (value,):
            for source in _of_pictures(array, max(indices)):
                yield _Rows([source.row(index) for index in indices])
    for further in inner if depth else ():
        yield from _sources(further, indices, depth - 1)


def _of_pictures(array: Any, last: int) -> Iterator[_Source]:
    if not _is_array(array) and type(array) is not list:
        return
    if len(array) <= last:
        return
    first = array[0]
    if _picture(first) is not None:
        yield _Source(array, None)
    elif type(first) is tuple and len(first) <= _PARTS:
        for key, part in enumerate(first):
            if _picture(part) is not None:
                yield _Source(array, key)
    elif type(first) is dict and len(first) <= 2 * _PARTS:
        for name, part in first.items():
            if _picture(part) is not None:
                yield _Source(array, name)


def _is_array(value: Any) -> bool:
    if type(value) is torch.Tensor:
        return bool(value.is_cpu and value.layout == torch.strided and value.dim() > 0)
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return False
    return bool(value.ndim > 0 and value.dtype.kind in "fuib")


def _parts(batch: Any, samples: int) -> Iterator[torch.Tensor]:
    few = 0
    for tensor in tensors_of(batch):
        if few < _PARTS and tensor.dim() in (3, 4) and len(tensor) >= samples:
            few += 1
            yield tensor


def _picture(value: Any) -> torch.Tensor | None:
    """float64[side, side], the mean of the channels, which come first or last; None: it
    is none, or has no contrast."""
    if not _is_array(value):
        return None
    sizes = tuple(value.shape)
    channels = None
    if len(sizes) == 3:
        channels = min((0, 2), key=lambda place: int(sizes[place]))
    if len(sizes) != (2 if channels is None else 3):
        return None
    height, width = [n for place, n in enumerate(sizes) if place != channels]
    many = channels is not None and sizes[channels] > _CHANNELS
    if min(height, width) < _SIDE or height * width > _LARGEST or many:
        return None
    plane = _numbers(value)
    if plane is None:
        return None
    plane = plane if channels is None else plane.mean(channels)
    size = (min(height, _COMMON), min(width, _COMMON))
    if size != (height, width):
        # Windows that lie alike from either end.
        plane = torch.nn.functional.adaptive_avg_pool2d(plane[None], size)[0]
    plane = plane - plane.mean()
    norm = plane.norm()
    return plane / norm if bool(norm > 0) and bool(norm.isfinite()) else None


def _numbers(value: Any) -> torch.Tensor | None:
    """float64; None: they are complex or quantised."""
    if isinstance(value, torch.Tensor):
        plain = not value.is_complex() and not value.is_quantized
        return value.detach().double() if plain else None
    # Views that are mirrored and bytes in another order are no tensors as they are.
    plain = sys.modules["numpy"].ascontiguousarray(value, dtype="float64")
    return torch.from_numpy(plain)


def _ways(picture: torch.Tensor) -> Iterator[torch.Tensor]:
    """The eight in which a square can lie, the given one first; four of another shape."""
    for turned in (picture, picture.T):
        for over in ((), (0,), (1,), (0, 1)):
            yield turned.flip(over)


def _fit(one: torch.Tensor, other: torch.Tensor) -> float:
    """Correlation; 0 of others in shape."""
    return abs(float((one * other).sum())) if one.shape == other.shape else 0.0


def _ways_of(
    parts: list[torch.Tensor], sources: list[_Rows], place: int
) -> dict[int, set[int]]:
    """By source: the ways in which the parts of a sample that are of it may lie."""
    ways: dict[int, set[int]] = {}
    for part in parts:
        picture = _picture(part)
        found = None if picture is None else _origin(picture, sources, place)
        if found is not None:
            number, fitting = found
            ways[number] = ways.get(number, set()) | fitting
    return ways


def _origin(
    picture: torch.Tensor, sources: list[_Rows], place: int
) -> tuple[int, set[int]] | None:
    """Which source it is of, and in which ways it may lie; None: it is of none."""
    best, origin, fitting = _ALIKE, None, set()
    for number, source in enumerate(sources):
        fits = [_fit(picture, way) for way in source.ways(place)]
        if fits and max(fits) > best:
            best, origin = max(fits), number
            fitting = {way for way, fit in enumerate(fits) if fit > best - _APART}
    return None if origin is None else (origin, fitting)


def _belong_together(one: _Rows, other: _Rows) -> bool:
    """Has each row more in common with that of its sample than with the next one's?"""
    rows = [
        (a, b)
        for a, b in zip(one.rows, other.rows)
        if a is not None and b is not None and a.shape == b.shape
    ]
    if len(rows) < _PAIRS:
        return False
    own = sum(_fit(a, b) for a, b in rows) / len(rows)
    moved = zip(rows, [*rows[1:], rows[0]])
    others = sum(_fit(a, b) for (a, _), (_, b) in moved) / len(rows)
    return own - others > _OWN
