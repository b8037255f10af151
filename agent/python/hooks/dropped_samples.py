"""Evaluations that leave out the last samples of their data set.

drop_last=True is for training: batches of one size, and in the next epoch others are
left out. In an evaluation, which reads the data set in order, it is always the same
samples that are never counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import BatchSampler, SequentialSampler

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data.dataloader import _BaseDataLoaderIter as LoaderIterator

# Name of the scalar of a loader.
NAME = "loader.leaves_samples_out"


class DroppedSamples:
    def __init__(self) -> None:
        # Was some batch of the pass read with gradients enabled?
        self._trains: WeakIdentityMap[LoaderIterator, bool] = WeakIdentityMap()

    def fetched(self, iterator: LoaderIterator) -> None:
        if torch.is_grad_enabled() and not self._trains.get(iterator):
            self._trains.set(iterator, True)

    def pass_ended(self, iterator: LoaderIterator) -> float | None:
        """1: samples of an evaluation were left out; None: it was none, or its data
        were not read in order."""
        batches = getattr(iterator, "_index_sampler", None)
        if self._trains.get(iterator) or torch.is_grad_enabled():
            return None
        if type(batches) is not BatchSampler or batches.batch_size < 2:
            return None
        if type(batches.sampler) is not SequentialSampler:
            return None
        samples: Any = len(batches.sampler)
        return float(bool(batches.drop_last) and samples % batches.batch_size != 0)
