"""Data sets of one kind that number their classes, or their words, differently.

A folder of the validation lacks a class, or each split makes its table of its own samples:
the numbers after the gap are shifted, and a model is judged by the wrong classes.
"""

from __future__ import annotations

import itertools
import re
import weakref
from typing import TYPE_CHECKING

from torch.utils.data import Subset

from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader

# Name of the scalar of a loader.
NAME = "loader.classes_apart"

# Attributes that are meant to be the same for all data of a task. Others (where a file
# begins, how many samples a class has) belong to one part of the data.
_TABLE = re.compile(
    "_?(stoi|vocab|((cls|class|categor|cat|label|target|tag|word|char|token|vocab)"
    "(s|es|y|ies)?_?(to|2)_?(idx|ids?|index|ix|int|num)))"
)
_MOST = 4096  # names that are compared
_LEAST = 2  # names of a table
_SETS = 64  # that are remembered


class ClassTables:
    def __init__(self) -> None:
        # The first data set of each class and attribute.
        self._first: dict[tuple[type[Any], str], weakref.ref[Any]] = {}
        self._said: WeakIdentityMap[Any, bool] = WeakIdentityMap()

    def pass_begins(self, loader: DataLoader[Any]) -> float | None:
        """1: a table of its data set gives another number to a name than that of the data
        set that was read first; None: it has no table, or that was said."""
        data: Any = loader.dataset
        while type(data) is Subset:
            data = data.dataset
        if not is_possible_key(data) or self._said.get(data):
            return None
        self._said.set(data, True)
        found: float | None = None
        for name, table in _tables(data):
            first = self._first_of(data, name)
            other: Any = getattr(first, "__dict__", {}).get(name)
            if first is not data and _is_table(other):
                found = max(found or 0.0, float(_differ(other, table)))
        return found

    def _first_of(self, data: Any, name: str) -> Any:
        key = (type(data), name)
        known = self._first.get(key)
        first = known() if known is not None else None
        if first is None and len(self._first) < _SETS:
            self._first[key] = weakref.ref(data)
        return data if first is None else first


def _tables(data: Any) -> list[tuple[str, dict[str, int]]]:
    attributes = getattr(data, "__dict__", None)
    if type(attributes) is not dict:
        return []
    return [
        (name, value)
        for name, value in list(attributes.items())
        if isinstance(name, str) and _TABLE.fullmatch(name) and _is_table(value)
    ]


def _is_table(value: Any) -> bool:
    """Does it give each name a number of its own?"""
    if type(value) is not dict or len(value) < _LEAST:
        return False
    few = list(itertools.islice(value.items(), _MOST))
    if not all(type(name) is str and type(number) is int for name, number in few):
        return False
    return len({number for _, number in few}) == len(few)


def _differ(one: dict[str, int], other: dict[str, int]) -> bool:
    few = itertools.islice(list(other.items()), _MOST)
    return any(one.get(name, number) != number for name, number in few)
