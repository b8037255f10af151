"""Maps of classes that are interpolated as a data set resizes its samples.

Between class 1 and class 3 a mean gives class 2, at every border. What resizes pictures
does so by default; a map wants the nearest value. Looked at are the first fetches of a
data set, while they run: a map of few whole numbers was resized into values that were
not in it, and a sample has just these, rounded, as integers. A picture of bytes may be
resized so, and so may what is ordered and smooth (heights, depths): it has no jumps over
a number.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.utils.data._utils import fetch

from _traincheck.batch_tensors import tensors_of
from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.observing import observe
from _traincheck.wrapping import quietly, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from traincheck_core import Args

    from _traincheck.watch import Watch

# Name of the scalar of a loader.
NAME = "loader.interpolates_classes"

_FETCHES = 8  # of a data set
_CALLS = 32  # of a fetch
_MAPS = 4  # of a fetch
_ROWS = 8  # of a batch
_HABIT = 3  # samples
_MIXES = ("interpolate", "grid_sample")  # of torch.nn.functional
# Who calls them by these names.
_CALLERS = (
    "torch.nn.functional",
    "torchvision.transforms._functional_tensor",
    "torchvision.transforms.v2.functional._geometry",
)
_SIDE = 8  # pixels; a map has at least as many
_LARGEST = 1 << 18  # pixels
_KINDS = (3, 64)  # of classes
_HIGHEST = 255
_AT_BORDERS = 0.5  # of the pixels, at most: else it is noise
_JUMPS = 0.2  # of the borders, over a number
_INTEGERS = (torch.int16, torch.int32, torch.int64)


class _Map(NamedTuple):
    """One that was resized."""

    contents: frozenset[bytes]  # rounded and truncated
    invents: bool  # values that were not in it


class _Seen:
    """One data set."""

    def __init__(self) -> None:
        self.fetches = 0
        self.wrong = 0  # samples
        self.right = 0
        self.calls = 0  # of this fetch
        self.maps: list[_Map] = []


class ResizedMasks:
    def __init__(self) -> None:
        self._seen: WeakIdentityMap[Any, _Seen] = WeakIdentityMap()
        # The data set that is read now, and by which thread.
        self._now: tuple[_Seen, int] | None = None

    def fetch_begins(self, data: Any) -> None:
        self._now = None
        if torch.utils.data.get_worker_info() is not None or not is_possible_key(data):
            return  # nobody asks in a worker
        seen = self._seen.get(data)
        if seen is None:
            seen = _Seen()
            self._seen.set(data, seen)
        seen.maps, seen.calls = [], 0
        if seen.fetches < _FETCHES:
            seen.fetches += 1
            self._now = (seen, get_ident())

    def looks(self) -> bool:
        """Does a fetch of this thread run that is looked at?"""
        return self._now is not None and self._now[1] == get_ident()

    def fetch_ended(self) -> None:
        self._now = None

    def resized(self, before: Any, after: Any) -> None:
        """Called with what was resized, or moved, into what."""
        if self._now is None or not self.looks():
            return
        seen = self._now[0]
        seen.calls += 1
        if seen.calls > _CALLS or len(seen.maps) >= _MAPS:
            return
        classes = _classes_of(before)
        if classes is not None and _is_map(after):
            values = after.detach().double().reshape(after.shape[-2:])
            contents = frozenset(map(_digest, (values.round(), values.trunc())))
            invents: bool | None = _invents(values, classes)
            if not invents and not after.is_floating_point():
                former = before.detach().double().reshape(before.shape[-2:])
                invents = _separates(former, values)
            if invents is not None:
                seen.maps.append(_Map(contents, invents))

    def fetched(self, data: Any, batch: Any) -> float | None:
        """1: maps of classes were interpolated; 0: their values were kept; None: no
        sample has a map that was resized."""
        seen = self._seen.get(data) if is_possible_key(data) else None
        if seen is None or not seen.maps:
            return None
        maps, seen.maps = seen.maps, []
        found = set(_contents_of(batch))
        for one in maps:
            if not found.isdisjoint(one.contents):
                seen.wrong += one.invents
                seen.right += not one.invents
        if seen.wrong:
            return 1.0 if seen.wrong >= _HABIT else None
        return 0.0 if seen.right else None


def _is_plain(value: Any) -> bool:
    plain = type(value) is torch.Tensor and value.is_cpu
    return bool(plain and value.layout == torch.strided and not value.is_complex())


def _is_map(value: Any) -> bool:
    """One channel of one sample?"""
    if not _is_plain(value) or value.dim() < 2:
        return False
    height, width = value.shape[-2:]
    return bool(value.numel() == height * width and value.numel() <= _LARGEST)


def _classes_of(value: Any) -> set[int] | None:
    """The whole numbers of a map; None: it is none."""
    if not _is_map(value) or value.requires_grad or min(value.shape[-2:]) < _SIDE:
        return None
    values = value.detach().double().reshape(value.shape[-2:])
    low, high = float(values.min()), float(values.max())
    if not 0 <= low <= high <= _HIGHEST or not torch.equal(values, values.round()):
        return None
    kinds = set(values.long().reshape(-1).bincount().nonzero().reshape(-1).tolist())
    if not _KINDS[0] <= len(kinds) <= _KINDS[1]:
        return None
    steps = values.diff(dim=1).abs()
    borders, jumps = int((steps > 0).sum()), int((steps > 1).sum())
    has_areas = 0 < borders <= _AT_BORDERS * values.numel()
    return kinds if has_areas and jumps >= _JUMPS * borders else None


def _invents(values: torch.Tensor, classes: set[int]) -> bool:
    """Are some in between? Zeros may fill up what lay outside."""
    return bool(set(values.unique().tolist()) - classes - {0})


def _separates(before: torch.Tensor, after: torch.Tensor) -> bool | None:
    """Has what was rounded at once borders between classes that had none, since others
    came to lie between them? None: not known, since these may have been there."""
    if any(torch.equal(after, _nearest(before, after.shape, at)) for at in (0, 0.5)):
        return False
    if any(now < then for now, then in zip(after.shape, before.shape)):
        return None
    came = any(not _borders(after, k) <= _borders(before, k) for k in (0, 1))
    return True if came else None


def _nearest(values: torch.Tensor, shape: torch.Size, at: float) -> torch.Tensor:
    """at: of a pixel, its begin or its middle."""
    rows, columns = (
        ((torch.arange(now, device="cpu") + at) * (then / now)).long()
        for now, then in zip(shape, values.shape)
    )
    return values[rows][:, columns]


def _borders(values: torch.Tensor, along: int) -> set[float]:
    """Each pair of classes as one number."""
    moved = values if along == 0 else values.T
    pairs = moved[:-1] * (_HIGHEST + 1) + moved[1:]
    return set(pairs.unique().tolist())


def _digest(values: torch.Tensor) -> bytes:
    content = values.long().reshape(-1).numpy().tobytes()
    return hashlib.blake2b(content, digest_size=16).digest()


def _contents_of(batch: Any) -> Iterator[bytes]:
    """Of integers that may be a map, or several."""
    for tensor in tensors_of(batch):
        if tensor.dtype in _INTEGERS and tensor.dim() > 1:
            for one in (tensor, *tensor[:_ROWS]):
                if _SIDE * _SIDE <= one.numel():
                    yield _digest(one)


class _Looking:
    """Has others in the places of torch's functions while a fetch runs. A mode of torch's
    would see more, but compiled code of the user's may refuse to run within one."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._pairs: list[tuple[str, Any, Any]] = []
        for name in _MIXES:
            original: Any = getattr(torch.nn.functional, name, None)
            if type(original) is types.FunctionType:
                ours = stand_in(original, self._looked_at(original))
                self._pairs.append((name, original, ours))

    def __enter__(self) -> None:
        for name, original, ours in self._pairs:
            _exchange(name, original, ours)

    def __exit__(self, *error: object) -> None:
        for name, original, ours in self._pairs:
            _exchange(name, ours, original)

    def _looked_at(self, original: Any) -> Any:
        watch = self._watch

        def looked_at(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            before = args[0] if args else kwargs.get("input")
            quietly(watch.core, watch.resized_masks.resized, before, result)
            return result

        return looked_at


def _exchange(name: str, former: Any, new: Any) -> None:
    for caller in _CALLERS:
        names = getattr(sys.modules.get(caller), "__dict__", {})
        if names.get(name) is former:
            names[name] = new


def _observe_pictures(watch: Watch) -> None:
    """PIL's, once they are imported."""
    module = sys.modules.get("PIL.Image")
    pictures = getattr(module, "Image", None)

    def resized(picture: Any, args: Args, result: Any) -> None:
        numpy = sys.modules.get("numpy")
        if numpy is not None and watch.resized_masks.looks():
            both = [numpy.array(one) for one in (picture, result)]
            if all(one.dtype.kind in "iu" and one.dtype.isnative for one in both):
                both = [one.astype("int64") for one in both]
                watch.resized_masks.resized(*map(torch.from_numpy, both))

    if isinstance(pictures, type):
        observe(watch, pictures, "resize", after=resized)


def install(watch: Watch) -> None:
    """REQUIRES: the fetcher is wrapped by nobody yet. What is exchanged is put back also
    if the data set raises."""
    fetcher = fetch._MapDatasetFetcher
    original: Any = fetcher.__dict__.get("fetch")
    if not isinstance(original, types.FunctionType):
        return

    looking = _Looking(watch)

    def begins(data: Any) -> None:
        _observe_pictures(watch)
        watch.resized_masks.fetch_begins(data)

    @functools.wraps(original)
    def looked_at(self: Any, *args: Any, **kwargs: Any) -> Any:
        quietly(watch.core, begins, self.dataset)
        try:
            if not watch.resized_masks.looks():
                return original(self, *args, **kwargs)
            with looking:
                return original(self, *args, **kwargs)
        except BaseException as error:
            error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
            raise
        finally:
            watch.resized_masks.fetch_ended()

    fetcher.fetch = looked_at
