"""Passes whose order repeats because torch's generator was put back.

A sampler draws its seed from the global generator. Who calls torch.manual_seed (or
set_rng_state) again between two epochs, for an evaluation or for some samples to look
at, gives every epoch the same order, and the same noise, masks and dropout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import sampler as samplers

from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader

# Name of the scalar of a loader.
NAME = "loader.generator_set_back"

_DRAWING = (
    samplers.RandomSampler,
    samplers.SubsetRandomSampler,
    samplers.WeightedRandomSampler,
)
_FEWEST = 4  # samples: fewer have the same order by chance


class _Row:
    """One loader."""

    def __init__(self) -> None:
        self.begin: int | None = None  # hash of the generator's state
        self.trained = False  # with the pass that began so


class SeededOrders:
    def __init__(self) -> None:
        self._rows: WeakIdentityMap[DataLoader, _Row] = WeakIdentityMap()
        # Of the loader over each that was first read last: one may be made an epoch.
        self._of_data: WeakIdentityMap[Any, _Row] = WeakIdentityMap()
        self._now: _Row | None = None  # of the pass that is read

    def optimizer_made(self) -> None:
        """Another training begins, and may begin as the one before did."""
        self._rows, self._of_data = WeakIdentityMap(), WeakIdentityMap()
        self._now = None

    def backward_begins(self) -> None:
        """Called with the first one of each pass."""
        if self._now is not None:
            self._now.trained = True

    def pass_begins(self, loader: DataLoader) -> float | None:
        """Called before anything is drawn for it. 1: the generator is where it was at the
        beginning of the pass before; None: nobody trains, or it draws from another."""
        self._now = None
        if not torch.is_grad_enabled() or not _draws_from_global(loader):
            return None
        self._now = row = self._row_of(loader)
        former, trained = row.begin, row.trained
        row.begin, row.trained = _state(), False
        if former is None or not trained:
            return None
        return float(former == row.begin)

    def _row_of(self, loader: DataLoader) -> _Row:
        row = self._rows.get(loader)
        if row is None:
            row = _Row()
            data: Any = loader.dataset
            if is_possible_key(data):
                former = self._of_data.get(data)
                if former is not None:
                    row.begin, row.trained = former.begin, former.trained
                self._of_data.set(data, row)
            self._rows.set(loader, row)
        return row


def _draws_from_global(loader: Any) -> bool:
    sampler = loader.sampler
    if type(getattr(loader, "batch_sampler", None)) is not samplers.BatchSampler:
        return False
    if type(sampler) not in _DRAWING or loader.generator is not None:
        return False
    return sampler.generator is None and len(sampler) >= _FEWEST


def _state() -> int:
    return hash(bytes(torch.default_generator.get_state().numpy()))
