"""Numbers of objects, written when they change.

All of an object's again every so many times, so that a reader that lost
records knows them again. One that is not told any more is written as NaN: not
known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core, Scalars

UNKNOWN = float("nan")  # always this one: it is equal to itself by identity

_AGAIN = 16  # times


class ObjectScalars:
    """What was last written of one object."""

    def __init__(self) -> None:
        self._written: Scalars = {}
        self._times = 0

    def write(self, core: Core, number: int, point: int, scalars: Scalars) -> None:
        """scalars: {(name, group): float} of the object of this number."""
        again = self._times % _AGAIN == 0
        self._times += 1
        written = self._written
        if not again and scalars == written:
            return
        for key in written.keys() - scalars.keys():
            scalars[key] = UNKNOWN
        if not again and scalars == written:
            return
        for key, value in scalars.items():
            former = written.get(key)
            if again or not (former is value or former == value):
                core.record_scalar(number, point, key[1], key[0], value)
        self._written = scalars


class WrittenScalars:
    """What was last written of each object."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # object -> (its number, what was written)
        self._objects: WeakIdentityMap[Any, tuple[int, ObjectScalars]]
        self._objects = WeakIdentityMap()

    def write(self, value: Any, kind: int, point: int, scalars: Scalars) -> None:
        """scalars: {(name, group): float} of the object `value`."""
        row = self._objects.get(value)
        if row is None:
            row = (self._core.define_object(value, kind), ObjectScalars())
            self._objects.set(value, row)
        row[1].write(self._core, row[0], point, scalars)
