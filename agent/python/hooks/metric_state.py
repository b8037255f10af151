"""What an object has collected, as far as it can be compared cheaply: its attributes, and
what is in their lists and dictionaries, once. Nothing of it is kept alive."""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    # By attribute, or attribute and key: what is there, and how many that counts.
    State = dict[str, tuple[object, int | None]]
    Counts = dict[str, int]

_ATTRIBUTES = 64
_ENTRIES = 64  # of a dictionary
_ELEMENTS = 4096  # of an array
_NUMBERS = (bool, int, float, str, type(None))
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def state_of(owner: Any) -> State | None:
    """None: it has no attributes, too many, or a window that forgets."""
    attributes = getattr(owner, "__dict__", None)
    if type(attributes) is not dict or not 0 < len(attributes) <= _ATTRIBUTES:
        return None
    found: State = {}
    for name, value in attributes.items():
        if type(value) is deque and value.maxlen is not None:
            return None
        found[name] = _seen(value)
        if issubclass(type(value), dict):
            for key, entry in islice(dict.items(value), _ENTRIES):
                if type(key) in (str, int):
                    found[f"{name}[{key}]"] = _seen(entry)
    return found


def counts_of(state: State) -> Counts:
    return {key: count for key, (_, count) in state.items() if count is not None}


def _seen(value: Any) -> tuple[object, int | None]:
    kind = type(value)
    if kind in _NUMBERS:
        return value, _whole(value)
    if issubclass(kind, (list, tuple, set, dict, deque)):
        return (kind.__name__, len(value)), len(value)
    if kind in _PLAIN:
        return _of_tensor(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.generic):
        return value.tobytes(), _whole(value.item())
    if numpy is not None and kind is numpy.ndarray:
        return _of_array(value)
    return id(value), None


def _of_tensor(value: torch.Tensor) -> tuple[object, int | None]:
    plain = value.is_cpu and value.layout == torch.strided and not value.is_complex()
    if plain and value.numel() <= _ELEMENTS:
        numbers = value.detach().reshape(-1).tolist()
        return tuple(numbers), _whole(float(sum(numbers)))
    version = 0 if value.is_inference() else value._version
    return (id(value), version), None


def _of_array(value: Any) -> tuple[object, int | None]:
    if value.dtype.kind not in "biuf" or value.size > _ELEMENTS:
        return (id(value), value.size), None
    return value.tobytes(), _whole(float(value.sum()))


def _whole(value: Any) -> int | None:
    """As a number of what was counted."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer() and value >= 0:
        return int(value)
    return None


def numbers_in(result: Any) -> Iterator[Any]:
    """Those that a result is, or has, once."""
    entries = [result]
    if issubclass(type(result), dict):
        entries = list(islice(dict.values(result), _ENTRIES))
    elif issubclass(type(result), (list, tuple)):
        entries = list(result[:_ENTRIES])
    numpy = sys.modules.get("numpy")
    for entry in entries:
        kind = type(entry)
        if kind in (int, float) or (kind in _PLAIN and entry.numel() == 1):
            yield entry
        elif numpy is not None and issubclass(kind, (numpy.generic, numpy.ndarray)):
            if entry.size == 1:
                yield entry
