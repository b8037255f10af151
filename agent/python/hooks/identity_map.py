"""A dictionary by identity that does not keep its keys alive."""

import weakref


class WeakIdentityMap:
    """Keys are ordinary objects (modules, optimizers), never tensors.

    Tensors must not get weak references: torch.utils.swap_tensors refuses
    tensors that have some, and `Module.to` may call it.
    """

    def __init__(self, dropped=None):
        """dropped(value) is called after a key's death, anywhere."""
        self._dropped = dropped
        self._rows = {}  # id of the key -> (weak reference, value)

    def get(self, key):
        row = self._rows.get(id(key))
        return row[1] if row is not None and row[0]() is key else None

    def set(self, key, value):
        number = id(key)

        def drop(reference):
            row = self._rows.get(number)
            if row is not None and row[0] is reference:
                del self._rows[number]
                if self._dropped is not None:
                    self._dropped(value)

        self._rows[number] = (weakref.ref(key, drop), value)

    def values(self):
        return [row[1] for row in list(self._rows.values())]

    def keys(self):
        keys = [row[0]() for row in list(self._rows.values())]
        return [key for key in keys if key is not None]

    def __len__(self):
        return len(self._rows)
