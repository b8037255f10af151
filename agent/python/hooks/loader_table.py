"""Iterators of loaders that this process has seen, and what became of them."""

from _traincheck.identity_map import WeakIdentityMap


class _Pass:
    """One pass of an iterator over its loader."""

    def __init__(self, loader, ordinal):
        self.loader = loader  # object number
        self.ordinal = ordinal
        self.over = False


class LoaderTable:
    def __init__(self, core):
        self._core = core
        self._ordinals = WeakIdentityMap()  # loader -> passes so far
        self._passes = WeakIdentityMap(self._gone)  # iterator -> _Pass
        self._dropped = []

    def begin(self, loader, iterator):
        core = self._core
        self.flush()
        former = self._passes.get(iterator)
        if former is not None:  # persistent workers use their iterator again
            self._end(former, core.MARK_ITERATOR_ABANDONED)
        number = core.define_object(loader, core.OBJECT_LOADER)
        ordinal = self._ordinals.get(loader) or 0
        self._ordinals.set(loader, ordinal + 1)
        self._passes.set(iterator, _Pass(number, ordinal))
        core.record_mark(core.MARK_ITERATOR_CREATED, number, ordinal)

    def loader_of(self, iterator):
        """Number of the loader whose pass this is; 0: none that goes on."""
        current = self._passes.get(iterator)
        return 0 if current is None or current.over else current.loader

    def fetched(self, iterator, index):
        current = self._passes.get(iterator)
        if current is not None:
            self._core.record_mark(self._core.MARK_BATCH_FETCHED, current.loader, index)

    def exhausted(self, iterator):
        current = self._passes.get(iterator)
        if current is not None:
            self._end(current, self._core.MARK_ITERATOR_EXHAUSTED)

    def flush(self):
        """Records the iterators that were dropped since the last call."""
        while self._dropped:
            self._end(self._dropped.pop(0), self._core.MARK_ITERATOR_ABANDONED)

    def _gone(self, dropped):
        # Runs wherever an iterator dies, maybe in a collection amid a record.
        self._dropped.append(dropped)

    def _end(self, ended, mark):
        if not ended.over:
            ended.over = True
            self._core.record_mark(mark, ended.loader, ended.ordinal)
