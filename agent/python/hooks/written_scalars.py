"""Numbers of objects, written when they change."""

from _traincheck.identity_map import WeakIdentityMap

_AGAIN = 16  # times


class WrittenScalars:
    """What was last written of each object; all of it again now and then."""

    def __init__(self, core):
        self._core = core
        self._objects = WeakIdentityMap()  # object -> [number, times, values]

    def write(self, value, kind, point, scalars):
        """scalars: {(name, group): float} of the object `value`."""
        row = self._objects.get(value)
        if row is None:
            row = [self._core.define_object(value, kind), 0, {}]
            self._objects.set(value, row)
        number, times, written = row
        row[1] += 1
        for key, scalar in scalars.items():
            if times % _AGAIN == 0 or written.get(key) != scalar:
                name, group = key
                self._core.record_scalar(number, point, group, name, scalar)
        row[2] = scalars
