"""Loaders that leave out their whole data set.

What is less than a batch is dropped with drop_last, and a data set of fewer samples than
a batch is nothing else: a loop over the loader does nothing, and nothing fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.lengths import length_of

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader

    from _traincheck.awake import Awake


class EmptyPasses:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        # Of the loaders with drop_last whose passes began since the last step.
        self._drops_all: bool | None = None  # None: there were none so far
        # Loaders that dropped all of their data before, with gradients enabled.
        self._dropped: WeakIdentityMap[DataLoader[Any], bool] = WeakIdentityMap()
        self._may_grow = False  # does all that was dropped belong to such loaders?

    def pass_begins(self, loader: DataLoader[Any]) -> None:
        drops_all = _drops_all(loader)
        if not drops_all and torch.is_grad_enabled():
            self._training_goes_on()
        if drops_all is None:
            return
        self._awake.add("opt.loader_drops_all")
        if drops_all:
            may_grow = torch.is_grad_enabled() and not self._dropped.get(loader)
            self._may_grow = may_grow and (self._may_grow or not self._drops_all)
            if torch.is_grad_enabled():
                self._dropped.set(loader, True)
        self._drops_all = bool(self._drops_all) or drops_all

    def _training_goes_on(self) -> None:
        """Another loader is read: what was dropped may be data that grows (samples that
        the model has labelled itself), unless its loader dropped all of it before."""
        if self._drops_all and self._may_grow:
            self._drops_all = False

    def optimizer_steps(self) -> float | None:
        """1: since the last step, a pass began that gives no batch."""
        found = self._drops_all
        if found is not None:
            self._drops_all = False
        return None if found is None else float(found)


def _drops_all(loader: DataLoader[Any]) -> bool | None:
    """None: it drops nothing, or how much it has is not known."""
    size, sampler = loader.batch_size, loader.sampler
    if not loader.drop_last or size is None:
        return None
    if not type(sampler).__module__.startswith("torch.utils.data."):
        return None
    count = length_of(sampler)  # of an IterableDataset it is not known
    return None if count is None else 0 < count < size
