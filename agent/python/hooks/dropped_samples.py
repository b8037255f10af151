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

    def fetched(self, iterator: LoaderIterator, index: int) -> float | None:
        """Called for every batch. 1: samples of an evaluation are left out behind it;
        None: it is not the last of an evaluation that reads its data in order."""
        if torch.is_grad_enabled():
            if not self._trains.get(iterator):
                self._trains.set(iterator, True)
            return None
        batches = getattr(iterator, "_index_sampler", None)
        if type(batches) is not BatchSampler or self._trains.get(iterator):
            return None
        if type(batches.sampler) is not SequentialSampler or batches.batch_size < 2:
            return None
        if index + 1 != len(batches):
            return None
        samples: Any = len(batches.sampler)
        return float(bool(batches.drop_last) and samples % batches.batch_size != 0)
