"""What the first batches of a loader show: samples that are all alike, and passes
that never come further than the first batch.

`next(iter(loader))` in each step begins the data anew. Where the loader shuffles that
draws a random batch; where it does not, it is the same batch for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import SequentialSampler

from _traincheck.batch_tensors import tensors_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader

_LEAST = 4  # samples, and elements of one
_ROWS, _ELEMENTS = 32, 4096  # of a batch that are looked at
_HASHED, _TENSORS = 256, 16  # of a batch that is compared with the next one
_PASSES = 2  # of one batch, which may have been a look at the data

ALIKE = "loader.samples_alike"
BEGINS_AGAIN = "loader.begins_again"


class _Passes:
    """What became of the passes over one loader that does not shuffle."""

    def __init__(self) -> None:
        self.batches = 0  # of the present one
        self.trained = False  # with its first batch
        self.ended_early = 0  # passes in a row that trained with one batch
        self.content: set[int] = set()  # hashes of the first batch of the present one


class FirstBatches:
    def __init__(self) -> None:
        self._ordered: WeakIdentityMap[DataLoader, _Passes] = WeakIdentityMap()
        self._now: tuple[int, _Passes] | None = None  # number of the loader
        self._reading: int | None = None  # loader of the present pass
        self._trained = False  # with a batch of it

    def pass_begins(self, loader: DataLoader, number: int) -> None:
        self._now = None
        self._reading, self._trained = number, False
        if type(loader.sampler) is not SequentialSampler or not loader.batch_size:
            return
        passes = self._ordered.get(loader)
        if passes is None:
            if not _has_more(loader, loader.batch_size):
                return
            passes = _Passes()
            self._ordered.set(loader, passes)
        early = passes.batches == 1 and passes.trained
        passes.ended_early = passes.ended_early + 1 if early else 0
        passes.batches, passes.trained = 0, False
        self._now = (number, passes)

    def trained_with(self, loader: int) -> bool:
        """Was there a backward in the present pass over it?"""
        return self._reading == loader and self._trained

    def backward_begins(self) -> None:
        self._trained = True
        if self._now is not None:
            self._now[1].trained = True

    def first_batch(self, batch: Any) -> float | None:
        """Of each loader. 1: all its samples are alike; None: they say nothing."""
        alike = [one for one in map(_are_alike, tensors_of(batch)) if one is not None]
        # One question may be asked of all pictures.
        return float(all(alike)) if alike else None

    def fetched(self, loader: int, batch: Any) -> float | None:
        """Called for every batch. 1: each step has begun the data anew."""
        if self._now is None or self._now[0] != loader:
            return None
        passes = self._now[1]
        passes.batches += 1
        if passes.batches == 1:
            before, passes.content = passes.content, _content(batch)
            # A data set may make new samples, whatever the index.
            if before and passes.content and not before & passes.content:
                passes.ended_early = 0
        if passes.batches == 1 and passes.ended_early >= _PASSES:
            return 1.0
        return 0.0 if passes.batches == 2 else None


def _has_more(loader: DataLoader, batch: int) -> bool:
    """Has its data set more than one batch? A stream does not say so."""
    try:
        return len(loader.sampler) > batch
    except TypeError:
        return False


def _content(batch: Any) -> set[int]:
    """Of its tensors that are not constant, by their first elements. What augments
    pictures leaves their labels as they are: one that stays makes it the same batch."""
    few = (tensor.reshape(-1)[:_HASHED] for tensor in tensors_of(batch))
    return {
        hash((place, str(flat.tolist())))
        for place, flat in zip(range(_TENSORS), few)
        if bool((flat != flat[0]).any())
    }


def _are_alike(tensor: torch.Tensor) -> bool | None:
    """Are its samples equal? None: they are too few, or constant, which says
    nothing."""
    if tensor.dim() < 2:
        return None
    few = tensor[:_ROWS]
    rows = few.reshape(len(few), -1)[:, :_ELEMENTS]
    if min(rows.shape) < _LEAST or bool((rows == rows[:, :1]).all()):
        return None
    return bool((rows == rows[:1]).all())
