"""What the first batches of a loader show: samples that are all alike, and passes
that never come further than the first batch.

`next(iter(loader))` in each step begins the data anew. Where the loader shuffles that
draws a random batch; where it does not, it is the same batch for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import SequentialSampler

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.utils.data import DataLoader

_DEPTH = 2
_LEAST = 4  # samples, and elements of one
_ROWS, _ELEMENTS = 32, 4096  # of a batch that are looked at
_PASSES = 2  # of one batch, which may have been a look at the data

ALIKE = "loader.samples_alike"
BEGINS_AGAIN = "loader.begins_again"


class _Passes:
    """What became of the passes over one loader that does not shuffle."""

    def __init__(self) -> None:
        self.batches = 0  # of the present one
        self.trained = False  # with its first batch
        self.ended_early = 0  # passes in a row that trained with one batch


class FirstBatches:
    def __init__(self) -> None:
        self._looked: set[int] = set()  # numbers of loaders
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

    def fetched(self, loader: int, batch: Any) -> Iterator[tuple[str, float]]:
        """Yields (scalar, value), for every batch."""
        if loader not in self._looked:
            self._looked.add(loader)
            # One question may be asked of all pictures.
            alike = list(_are_alike(batch, _DEPTH))
            if alike:
                yield ALIKE, float(all(alike))
        if self._now is None or self._now[0] != loader:
            return
        passes = self._now[1]
        passes.batches += 1
        if passes.batches == 1 and passes.ended_early >= _PASSES:
            yield BEGINS_AGAIN, 1.0
        elif passes.batches == 2:
            yield BEGINS_AGAIN, 0.0


def _has_more(loader: DataLoader, batch: int) -> bool:
    """Has its data set more than one batch? A stream does not say so."""
    try:
        return len(loader.sampler) > batch
    except TypeError:
        return False


def _are_alike(value: Any, depth: int) -> Iterator[bool]:
    """Of each tensor of samples that are not constant: are all of them equal?"""
    if type(value) is torch.Tensor:
        if not value.is_cpu or value.dim() < 2 or value.layout is not torch.strided:
            return
        few = value.detach()[:_ROWS]
        rows = few.reshape(len(few), -1)[:, :_ELEMENTS]
        if min(rows.shape) < _LEAST or bool((rows == rows[:, :1]).all()):
            return
        yield bool((rows == rows[:1]).all())
    elif depth > 0 and isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _are_alike(item, depth - 1)
