"""Loaders that leave out their whole data set.

What is less than a batch is dropped with drop_last, and a data set of fewer samples than
a batch is nothing else: a loop over the loader does nothing, and nothing fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader

    from _traincheck.awake import Awake


class EmptyPasses:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        # Of the loaders with drop_last whose passes began since the last step.
        self._drops_all: bool | None = None  # None: there were none so far

    def pass_begins(self, loader: DataLoader[Any]) -> None:
        drops_all = _drops_all(loader)
        if drops_all is not None:
            self._drops_all = bool(self._drops_all) or drops_all
            self._awake.add("opt.loader_drops_all")

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
    try:
        count = len(sampler)
    except TypeError:  # of an IterableDataset
        return None
    return bool(0 < count < size)
