"""Ranks that have split a data set differently.

Each rank draws its own parts where the ranks' random numbers differ. What one rank holds
out, another trains with; and the shares that a DistributedSampler gives them overlap.
"""

from __future__ import annotations

import array
import hashlib
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Subset
from torch.utils.data.distributed import DistributedSampler

from _traincheck import run_agreement
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader
    from traincheck_core import Core

# Name of the scalar of a loader.
NAME = "loader.splits_differ"

_MOST = 1 << 22  # indices
_PARTS = 16  # that are compared


class RankSplits:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._told: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        self._count = 0

    def pass_begins(self, loader: DataLoader) -> float | None:
        """1: another rank has other samples in this part of the data set; None: ranks
        do not share it, or that was said."""
        data, sampler = loader.dataset, loader.sampler
        if type(data) is not Subset or not isinstance(sampler, DistributedSampler):
            return None
        if sampler.num_replicas < 2 or not torch.distributed.is_initialized():
            return None
        if self._told.get(data) or self._count == _PARTS or len(data) > _MOST:
            return None
        self._told.set(data, True)
        self._count += 1
        # Ranks begin their parts in the same order, or have others to compare with.
        key = f"split {self._count} of {len(data)}"
        try:
            indices = array.array("q", map(int, data.indices)).tobytes()
        except (TypeError, ValueError):  # no numbers
            return None
        digest = hashlib.blake2b(indices, digest_size=16).hexdigest()
        what = "the ranks' parts of a data set"
        return run_agreement.differs(self._core, what, key, digest)
