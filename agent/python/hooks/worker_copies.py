"""Data sets that are changed while persistent workers hold copies of them.

Workers that live on over several passes have the data set as it was when they began.
What a training changes on its own copy afterwards (set_epoch, the stage of a
curriculum) never reaches them. Counted are numbers, bools and texts among the
attributes of the data set and of those that it wraps, and tensors of one element that
are not in shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter as LoaderIterator

    Settings = dict[tuple[int, str], Any]

# Name of the scalar: 1 if a setting has changed since the workers began.
NAME = "loader.workers_hold_old"
_DEPTH = 4  # data sets within each other
_ATTRIBUTES = 64  # of each
_LONGEST = 256  # text


class WorkerCopies:
    def __init__(self) -> None:
        # As the data set was when the workers of the iterator began.
        self._began: WeakIdentityMap[LoaderIterator, Settings] = WeakIdentityMap()

    def pass_begins(
        self, loader: DataLoader[Any], iterator: LoaderIterator
    ) -> float | None:
        """None: its workers begin now, or it has none that stay."""
        if not getattr(loader, "persistent_workers", False) or not loader.num_workers:
            return None
        now = _settings(loader.dataset)
        began = self._began.get(iterator)
        if began is None:
            self._began.set(iterator, now)
            return None
        # A value that is there for the first time may be computed and kept.
        return float(any(now[key] != began[key] for key in began.keys() & now.keys()))


def _settings(dataset: Any) -> Settings:
    settings: Settings = {}
    for depth in range(_DEPTH):
        attributes = getattr(dataset, "__dict__", None)
        if type(attributes) is not dict:
            break
        for name in list(attributes)[:_ATTRIBUTES]:
            value = attributes[name]
            if type(value) is torch.Tensor and _is_own_number(value):
                settings[depth, name] = value.item()
            elif type(value) in (bool, int, float) or (
                type(value) is str and len(value) <= _LONGEST
            ):
                settings[depth, name] = value
        dataset = attributes.get("dataset")
    return settings


def _is_own_number(tensor: torch.Tensor) -> bool:
    """One that no worker shares."""
    return tensor.is_cpu and tensor.numel() == 1 and not tensor.is_shared()
