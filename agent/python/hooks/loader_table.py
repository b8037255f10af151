"""Iterators of loaders that this process has seen, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter as LoaderIterator
    from traincheck_core import Core

# Name of the scalar with the line that made a loader.
MADE_AT = "loader.made.site"


class _Pass:
    """One pass of an iterator over its loader."""

    def __init__(self, loader: int, ordinal: int) -> None:
        self.loader = loader  # object number
        self.ordinal = ordinal
        self.over = False


class LoaderTable:
    def __init__(self, core: Core) -> None:
        self._core = core
        # loader -> passes so far
        self._ordinals: WeakIdentityMap[DataLoader, int] = WeakIdentityMap()
        # loader -> number of the site that made it
        self._made: WeakIdentityMap[DataLoader, int] = WeakIdentityMap()
        self._passes: WeakIdentityMap[LoaderIterator, _Pass]
        self._passes = WeakIdentityMap(self._gone)
        self._dropped: list[_Pass] = []

    def made(self, loader: DataLoader) -> None:
        """Called as its construction ends."""
        self._made.set(loader, self._core.site_here())

    def begin(self, loader: DataLoader, iterator: LoaderIterator) -> None:
        core = self._core
        self.flush()
        former = self._passes.get(iterator)
        if former is not None:  # persistent workers use their iterator again
            self._end(former, core.MARK_ITERATOR_ABANDONED)
        number = core.define_object(loader, core.OBJECT_LOADER)
        ordinal = self._ordinals.get(loader) or 0
        self._ordinals.set(loader, ordinal + 1)
        self._passes.set(iterator, _Pass(number, ordinal))
        site = self._made.get(loader)
        if ordinal == 0 and site:
            core.record_scalar(number, core.POINT_FETCH, 0, MADE_AT, float(site))
        core.record_mark(core.MARK_ITERATOR_CREATED, number, ordinal)

    def loader_of(self, iterator: LoaderIterator) -> int:
        """Number of the loader whose pass this is; 0: none that goes on."""
        current = self._passes.get(iterator)
        return 0 if current is None or current.over else current.loader

    def is_first_batch(self, iterator: LoaderIterator, index: int) -> bool:
        """Of the loader, not of this pass only."""
        current = self._passes.get(iterator)
        return current is not None and current.ordinal == index == 0

    def fetched(self, iterator: LoaderIterator, index: int) -> None:
        current = self._passes.get(iterator)
        if current is not None:
            self._core.record_mark(self._core.MARK_BATCH_FETCHED, current.loader, index)

    def exhausted(self, iterator: LoaderIterator) -> None:
        current = self._passes.get(iterator)
        if current is not None:
            self._end(current, self._core.MARK_ITERATOR_EXHAUSTED)

    def flush(self) -> None:
        """Records the iterators that were dropped since the last call."""
        while self._dropped:
            self._end(self._dropped.pop(0), self._core.MARK_ITERATOR_ABANDONED)

    def _gone(self, dropped: _Pass) -> None:
        # Runs wherever an iterator dies, maybe in a collection amid a record.
        self._dropped.append(dropped)

    def _end(self, ended: _Pass, mark: int) -> None:
        if not ended.over:
            ended.over = True
            self._core.record_mark(mark, ended.loader, ended.ordinal)
