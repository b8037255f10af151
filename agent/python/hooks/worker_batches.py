"""Workers of a loader that all give the same.

A stream (IterableDataset) is copied into each worker. One that does not ask which
worker it is in gives every sample as often as there are workers. Where nothing is drawn,
their first batches are equal; where each worker shuffles, they have given the same samples
at the end of a pass. One that draws samples again and again has some twice itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import dataloader

from _traincheck.batch_tensors import tensors_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.utils.data.dataloader import _BaseDataLoaderIter as LoaderIterator
    from traincheck_core import Core

_BYTES = 4096  # of each tensor of a batch
_ITERABLE = dataloader._DatasetKind.Iterable
_SAMPLES = 4096  # of a worker; a pass of more is not compared
_FEWEST = 16
_SAMPLE_BYTES = 512  # of each tensor of a sample
_PASSES = 2  # of a loader whose samples are compared
_LOADERS = 64
_MOST = 0.9  # of the samples: the end of a stream may be dropped


class _Pass:
    def __init__(self) -> None:
        self.first: list[int] = []  # hashes of the first batches, one of each worker
        # Of the samples of each worker; None: they are not compared.
        self.samples: list[set[int]] | None = None
        self.counts: list[int] = []
        self.batches = 0


class WorkerBatches:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._passes: WeakIdentityMap[LoaderIterator, _Pass] = WeakIdentityMap()
        self._begun: dict[int, int] = {}  # passes of each loader, that are compared
        self._repeating: set[int] = set()  # loaders

    def fetched(self, iterator: Any, loader: int, batch: Any) -> None:
        """loader: number of the object. Called for every batch."""
        workers = getattr(iterator, "_num_workers", 0)
        if workers < 2 or getattr(iterator, "_dataset_kind", None) != _ITERABLE:
            return
        current = self._passes.get(iterator)
        if current is None:
            current = self._begin(iterator, loader, workers)
        if current.samples is not None:
            _add_samples(current, batch)
        first = current.first
        if len(first) == workers:
            return
        contents = tuple(map(_content, tensors_of(batch)))
        if not contents:
            return
        first.append(hash(contents))
        if len(first) == workers:
            self._say(loader, len(set(first)) == 1 or loader in self._repeating)

    def ended(self, iterator: Any, loader: int) -> None:
        """All batches of a pass were read."""
        current = self._passes.get(iterator)
        if current is None or current.samples is None:
            return
        samples, current.samples = current.samples, None
        if _are_the_same(samples, current.counts):
            self._repeating.add(loader)
            self._say(loader, True)

    def _begin(self, iterator: Any, loader: int, workers: int) -> _Pass:
        current = _Pass()
        self._passes.set(iterator, current)
        begun = self._begun.get(loader, 0)
        in_order = getattr(iterator, "_in_order", True)
        if in_order and begun < _PASSES and len(self._begun) < _LOADERS:
            self._begun[loader] = begun + 1
            current.samples = [set() for _ in range(workers)]
            current.counts = [0] * workers
        return current

    def _say(self, loader: int, repeats: bool) -> None:
        core = self._core
        said = float(repeats)
        core.record_scalar(loader, core.POINT_FETCH, 0, "loader.workers_repeat", said)


def _add_samples(current: _Pass, batch: Any) -> None:
    samples = current.samples or []
    worker = current.batches % max(1, len(samples))
    current.batches += 1
    hashes = _hashes(batch)
    current.counts[worker] += len(hashes)
    if not hashes or current.counts[worker] > _SAMPLES:
        current.samples = None
    else:
        samples[worker].update(hashes)


def _hashes(batch: Any) -> list[int]:
    """Of the samples of a batch."""
    tensors = [one for one in tensors_of(batch) if one.dim() > 0]
    count = len(tensors[0]) if tensors else 0
    if count > _SAMPLES:
        return []
    parts = [list(_rows(one)) for one in tensors if len(one) == count]
    return [hash(sample) for sample in zip(*parts)]


def _rows(tensor: torch.Tensor) -> Iterator[bytes]:
    """What each has, in some of its elements from all over it."""
    rows = tensor.reshape(len(tensor), -1)
    most = max(1, _SAMPLE_BYTES // rows.element_size())
    some = rows[:, :: max(1, rows.shape[1] // most)][:, :most].contiguous()
    for row in some.view(torch.uint8).numpy():
        yield bytes(row.tobytes())


def _are_the_same(samples: list[set[int]], counts: list[int]) -> bool:
    """Has each worker given them once, and all of them the same ones?"""
    fewest, most = min(map(len, samples)), max(map(len, samples))
    if fewest < max(_FEWEST, _MOST * most):
        return False
    if any(len(own) < _MOST * count for own, count in zip(samples, counts)):
        return False
    return len(set.intersection(*samples)) >= _MOST * most


def _content(tensor: torch.Tensor) -> bytes:
    flat = tensor.contiguous().reshape(-1)
    few = flat[: max(1, _BYTES // flat.element_size())]
    return bytes(few.view(torch.uint8).numpy().tobytes())
