"""Schedules that go on although nothing is trained any more.

An iterator that was made once, outside of the loop over epochs (`pairs = zip(a, b)`), is
used up after the first one. The loop goes on through the others without a batch, counts
epochs, steps its schedule and says at the end that it has trained.

No optimizer steps any more, so it is the schedule that is looked at: a line that stepped
it after trainings steps it in pass after pass without one. A schedule that is wound
forward, to where a training is to go on, is stepped before any training; batches that
are left out, for nothing in them is to be learned, are not whole passes.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.places import place

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core

    from _traincheck.places import Place

# Name of the scalar of the loader that was read last.
NAME = "loader.trains_no_more"

_IDLE = 3  # steps of a schedule in a row, each after data that ended
_PLACES = 4  # in the code, of a schedule
_MOST = 64  # loaders that something is said of


class _Row:
    """One scheduler."""

    def __init__(self) -> None:
        self.trained = 0  # _trained, at its last step
        self.ended = 0  # _ended, at its last step
        # Where it was stepped after a training.
        self.places: set[Place] = set()
        self.looks = 0
        self.idle = 0


class UntrainedPasses:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._rows: WeakIdentityMap[Any, _Row] = WeakIdentityMap()
        # So far: backwards, steps and forwards with gradients; ends of data.
        self._trained = 0
        self._ended = 0
        self._read = (0, 0)  # the loader that was read last, and the thread
        self._reads = 0
        self._said: dict[int, bool] = {}  # by loader

    def trains(self) -> None:
        self._trained += 1

    def read(self, loader: int) -> None:
        """A pass over it begins, or it gave a batch."""
        self._read = (loader, get_ident())
        self._reads += 1

    def trainings(self) -> int:
        """So far: backwards, steps and forwards with gradients."""
        return self._trained

    def reads(self) -> int:
        """So far: batches, and beginnings of passes."""
        return self._reads

    def loader(self) -> int:
        """The one that this thread has read last; 0: there is none."""
        loader, thread = self._read
        return loader if thread == get_ident() else 0

    def data_ended(self) -> None:
        """Called, too, where a loader's iterator is asked behind its end."""
        self._ended += 1

    def scheduler_steps(self, scheduler: Any) -> None:
        row = self._rows.get(scheduler)
        if row is None:  # made: its constructor steps it
            row = _Row()
            row.trained, row.ended = self._trained, self._ended
            self._rows.set(scheduler, row)
            return
        ended, row.ended = row.ended != self._ended, self._ended
        if row.trained != self._trained:
            row.trained, row.idle = self._trained, 0
            if row.looks < _PLACES:
                row.looks += 1
                row.places.add(place(self._core))
            if row.looks > 1:
                self._say(False)
        elif ended and row.places and place(self._core) in row.places:
            row.idle += 1
            if row.idle >= _IDLE:
                self._say(True)

    def _say(self, found: bool) -> None:
        loader, thread = self._read
        if not loader or thread != get_ident() or self._said.get(loader) == found:
            return
        if loader not in self._said and len(self._said) == _MOST:
            return
        self._said[loader] = found
        core = self._core
        core.record_scalar(loader, core.POINT_FETCH, 0, NAME, float(found))
