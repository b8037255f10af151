"""A dictionary by identity that does not keep its keys alive."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


def is_possible_key(value: object) -> bool:
    """Lists, dictionaries and numbers take no weak references."""
    return type(value).__weakrefoffset__ != 0


Key = TypeVar("Key")
Value = TypeVar("Value")


class WeakIdentityMap(Generic[Key, Value]):
    """Keys are ordinary objects (modules, optimizers), never tensors.

    Tensors must not get weak references: torch.utils.swap_tensors refuses
    tensors that have some, and `Module.to` may call it.
    """

    def __init__(self, dropped: Callable[[Value], None] | None = None) -> None:
        """dropped(value) is called after a key's death, anywhere."""
        self._dropped = dropped
        self._rows: dict[
            int, tuple[weakref.ref[Key], Value]
        ] = {}  # id of the key -> (weak reference, value)

    def get(self, key: Key) -> Value | None:
        row = self._rows.get(id(key))
        return row[1] if row is not None and row[0]() is key else None

    def set(self, key: Key, value: Value) -> None:
        number = id(key)
        row = self._rows.get(number)
        if self._dropped is None and row is not None and row[0]() is key:
            self._rows[number] = (row[0], value)  # its callback knows no value
            return

        def drop(reference: weakref.ref[Key]) -> None:
            if self._rows.pop(number, None) is not None:
                self._dropped(value)  # type: ignore[misc]

        # What a signal handler raises in the callback of a weak reference is
        # lost, and handlers run only in Python code: where it can, the
        # callback has none. It is called before the id is another object's,
        # and not at all for a reference that was replaced here.
        callback: Callable[[weakref.ref[Key]], object] = drop
        if self._dropped is None:
            callback = functools.partial(self._rows.pop, number)
        self._rows[number] = (weakref.ref(key, callback), value)

    def discard(self, key: Key) -> None:
        if self.get(key) is not None:
            del self._rows[id(key)]

    def values(self) -> list[Value]:
        return [row[1] for row in list(self._rows.values())]

    def keys(self) -> list[Key]:
        keys = [row[0]() for row in list(self._rows.values())]
        return [key for key in keys if key is not None]

    def items(self) -> list[tuple[Key, Value]]:
        rows = [(row[0](), row[1]) for row in list(self._rows.values())]
        return [(key, value) for key, value in rows if key is not None]

    def __len__(self) -> int:
        return len(self._rows)
