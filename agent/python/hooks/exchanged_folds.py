"""A cross-validation whose folds share one model.

Each fold trains with what the others held out. Where the model goes on from one fold to
the next, it is evaluated on samples that it has learned. Seen by the parts of a data set
that are read: samples that were evaluated are trained with now, others that were trained
with are evaluated, and the weights have not begun anew in between (lineages.py). What was
a part of the training as it is (a task, a client, a stage) is evaluated to see what is
remembered of it.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Subset, SubsetRandomSampler

from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch.utils.data import DataLoader

    from _traincheck.lineages import Lineages

NAME = "loader.folds_share_model"  # of the scalar

_LOADERS = 1024  # that are looked at
_MOST = 200_000  # samples of a part
_PARTS = 64  # of the training, that are remembered
_SHARE = 1 / 2  # of what is evaluated


class _Part(NamedTuple):
    whole: Callable[[], Any]  # the data set; None: it is gone
    samples: frozenset[int]  # indices in it


class ExchangedFolds:
    def __init__(self, lineages: Lineages) -> None:
        self._lineages = lineages
        self._parts_of: WeakIdentityMap[DataLoader, _Part] = WeakIdentityMap()
        self._looked = 0
        self._whole: Callable[[], Any] = lambda: None  # what all are parts of
        self._pending: frozenset[int] = frozenset()  # to train with, until a step
        self._is_later = False  # has another model been trained with a part?
        self._begins_anew()

    def _begins_anew(self) -> None:
        self._lineage = self._lineages.count
        self._now: frozenset[int] = frozenset()  # what is trained with
        self._trained: set[int] = set()
        self._parts: set[int] = set()  # hashes of those
        self._evaluated: set[int] = set()
        self._exchanges = False  # is something of that trained with now?

    def pass_begins(self, loader: DataLoader) -> float | None:
        """1: most of what is evaluated was trained with in an earlier fold; 0: nothing of
        it, in a later fold; None: that is no question here."""
        part = self._part_of(loader)
        whole = part.whole()
        if whole is None:
            return None
        if self._whole() is not whole:
            self._whole, self._is_later = part.whole, False
            self._begins_anew()
        if torch.is_grad_enabled():
            self._pending = part.samples
            return None
        self._pending = frozenset()
        return self._evaluates(part.samples)

    def _part_of(self, loader: DataLoader) -> _Part:
        known = self._parts_of.get(loader)
        if known is None:
            self._looked += 1
            known = _part_of(loader) if self._looked <= _LOADERS else _NO_PART
            self._parts_of.set(loader, known)
        return known

    def optimizer_steps(self) -> None:
        if not self._pending:
            return
        samples, self._pending = self._pending, frozenset()
        if self._lineage != self._lineages.count:
            self._is_later = self._is_later or bool(self._parts)
            self._begins_anew()
        self._exchanges = self._exchanges or not self._evaluated.isdisjoint(samples)
        if hash(samples) not in self._parts and len(self._parts) < _PARTS:
            self._parts.add(hash(samples))
            self._trained |= samples
        self._now = samples

    def _evaluates(self, samples: frozenset[int]) -> float | None:
        apart = self._now.isdisjoint(samples) and hash(samples) not in self._parts
        self._evaluated |= samples
        if not apart or len(self._parts) + self._is_later < 2:
            return None
        known = len(self._trained & samples)
        if known == 0:
            return 0.0
        return 1.0 if self._exchanges and known >= _SHARE * len(samples) else None


_NO_PART = _Part(lambda: None, frozenset())


def _part_of(loader: DataLoader) -> _Part:
    """_NO_PART: all of a data set, or not known."""
    data, indices = loader.dataset, None
    sampler = getattr(loader, "sampler", None)
    if type(sampler) is SubsetRandomSampler:
        indices = sampler.indices
    while type(data) is Subset:
        own = data.indices
        if len(own) > _MOST:
            return _NO_PART
        indices = own if indices is None else [own[index] for index in indices]
        data = data.dataset
    if indices is None or len(indices) > _MOST or not is_possible_key(data):
        return _NO_PART
    return _Part(weakref.ref(data), frozenset(int(index) for index in indices))
