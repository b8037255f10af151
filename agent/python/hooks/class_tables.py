"""Data sets of one kind that number their classes, or their words, differently.

A folder of the validation lacks a class, or each split makes its table of its own samples:
the numbers after the gap are shifted, and a model is judged by the wrong classes.
"""

from __future__ import annotations

import itertools
import re
import weakref
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Subset

from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from collections.abc import Iterator
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
# Attributes that hold such a table within themselves, and that list the names in order.
_HOLDER = re.compile(
    "_?(le|vocab(ulary)?|(label|class|category|tag|target)_?"
    "(encoder|index|map(ping)?|table|vocab(ulary)?))"
)
_NAMES = re.compile("_?(classes_?|(class|label|tag)_names|categories)")
_MOST = 4096  # names that are compared
_LEAST = 2  # names of a table
_PARTS = 16  # of each other
_SETS = 64  # that are remembered


class ClassTables:
    def __init__(self) -> None:
        # The first data set of each class and attribute.
        self._first: dict[tuple[type[Any], str], weakref.ref[Any]] = {}
        self._said: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        # Of another table, and read once, with gradients.
        self._waits: WeakIdentityMap[Any, bool] = WeakIdentityMap()

    def pass_begins(self, loader: DataLoader[Any]) -> float | None:
        """1: a table of its data set gives another number to a name than that of the data
        set that was read first; None: it has no table, that was said, or it may be
        trained with."""
        data = _whole(loader.dataset)
        if not is_possible_key(data) or self._said.get(data):
            return None
        found = self._compare(data)
        # Two languages may have words of their own. What is read with gradients and not
        # trained with is known in its second pass.
        if found and torch.is_grad_enabled() and self._waits.get(data) is None:
            self._waits.set(data, True)
            return None
        self._said.set(data, True)
        return found

    def trained_with(self, data: Any) -> None:
        """Called when a backward followed a batch of it."""
        data = _whole(data)
        if is_possible_key(data) and self._waits.get(data):
            self._said.set(data, True)

    def _compare(self, data: Any) -> float | None:
        found: float | None = None
        for name, table in _tables(data):
            first = self._first_of(data, name)
            other = dict(_tables(first)).get(name)
            if first is not data and other is not None:
                found = max(found or 0.0, float(_differ(other, table)))
        return found

    def _first_of(self, data: Any, name: str) -> Any:
        key = (type(data), name)
        known = self._first.get(key)
        first = known() if known is not None else None
        if first is None and len(self._first) < _SETS:
            self._first[key] = weakref.ref(data)
        return data if first is None else first


def _whole(data: Any) -> Any:
    for _ in range(_PARTS):
        if type(data) is not Subset:
            break
        data = data.dataset
    return data


def _tables(data: Any) -> Iterator[tuple[str, dict[str, int]]]:
    """By their attributes, and those within attributes."""
    attributes = _attributes(data)
    tables = [
        (name, value)
        for name, value in attributes
        if _TABLE.fullmatch(name) and _is_table(value)
    ]
    yield from tables
    for name, value in attributes:
        if _NAMES.fullmatch(name):
            # Names that a table numbers are only listed: a folder may lack some of them.
            for listed in _numbered(value):
                if not any(listed.keys() <= table.keys() for _, table in tables):
                    yield name, listed
        elif _HOLDER.fullmatch(name):
            for inner, held in _attributes(value):
                within = [held] if _is_table(held) else []
                if _NAMES.fullmatch(inner):
                    within = _numbered(held)
                yield from ((f"{name}.{inner}", table) for table in within)


def _attributes(owner: Any) -> list[tuple[str, Any]]:
    attributes = getattr(owner, "__dict__", None)
    if type(attributes) is not dict:
        return []
    named = [(name, value) for name, value in list(attributes.items())]
    return [(name, value) for name, value in named if isinstance(name, str)]


def _numbered(names: Any) -> list[dict[str, int]]:
    """A table of names that are listed in the order of their numbers, or none."""
    listed = names.tolist() if type(names).__module__ == "numpy" else names
    if type(listed) not in (list, tuple) or not 0 < len(listed) <= _MOST:
        return []
    if not all(type(name) is str for name in listed):
        return []
    table = {name: number for number, name in enumerate(listed)}
    return [table] if _is_table(table) and len(table) == len(listed) else []


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
