"""Passes over data that end long before the length of their loader.

Who goes on in the middle of a pass skips the batches that were trained with. Where the
skip stays, all later passes leave out the same part of the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.data.dataloader import _DatasetKind

from _traincheck.lengths import length_of

if TYPE_CHECKING:
    from typing import Any

# Name of the scalar of a loader.
NAME = "loader.ends_early"

_SHARE = 0.75  # of the length, or less: lengths of buckets are estimates
_PASSES = 2  # in a row, of one number of batches
_MOST = 64  # loaders


class ShortPasses:
    def __init__(self) -> None:
        # Of each loader: batches of the last pass, and how many ended with so many.
        self._ended: dict[int, tuple[int, int]] = {}

    def pass_ended(self, loader: int, iterator: Any) -> float | None:
        """Called at the end of the data. 1: so it was in the pass before, too; None: not
        known."""
        if loader not in self._ended and len(self._ended) == _MOST:
            return None
        if iterator._dataset_kind == _DatasetKind.Iterable:
            return None  # its length is an estimate
        length = length_of(iterator._index_sampler)
        if length is None:  # of a sampler without one
            return None
        batches = int(iterator._num_yielded)
        last, count = self._ended.get(loader, (batches, 0))
        count = count + 1 if last == batches else 1
        self._ended[loader] = (batches, count)
        if batches > _SHARE * length:
            return 0.0
        return 1.0 if count >= _PASSES else None
