"""Workers of a loader that all give the same.

A stream (IterableDataset) is copied into each worker. One that does not ask which
worker it is in gives every sample as often as there are workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import dataloader

from _traincheck.batch_tensors import tensors_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data.dataloader import _BaseDataLoaderIter as LoaderIterator
    from traincheck_core import Core

_BYTES = 4096  # of each tensor of a batch
_ITERABLE = dataloader._DatasetKind.Iterable


class WorkerBatches:
    def __init__(self, core: Core) -> None:
        self._core = core
        # Hashes of the first batches, one of each worker.
        self._first: WeakIdentityMap[LoaderIterator, list[int]] = WeakIdentityMap()

    def fetched(self, iterator: Any, loader: int, batch: Any) -> None:
        """loader: number of the object. Called for every batch."""
        workers = getattr(iterator, "_num_workers", 0)
        if workers < 2 or getattr(iterator, "_dataset_kind", None) != _ITERABLE:
            return
        first = self._first.get(iterator)
        if first is None:
            first = []
            self._first.set(iterator, first)
        if len(first) == workers:
            return
        contents = tuple(map(_content, tensors_of(batch)))
        if not contents:
            return
        first.append(hash(contents))
        if len(first) == workers:
            core = self._core
            same = float(len(set(first)) == 1)
            core.record_scalar(
                loader, core.POINT_FETCH, 0, "loader.workers_repeat", same
            )


def _content(tensor: torch.Tensor) -> bytes:
    flat = tensor.contiguous().reshape(-1)
    few = flat[: max(1, _BYTES // flat.element_size())]
    return bytes(few.view(torch.uint8).numpy().tobytes())
