"""Schedulers that do the same: of one class, with the same settings.

Two of one class may share an optimizer on purpose (a warm-up and a cool-down, each by a
line). Two that are equal change its rate twice.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# Attributes that say how far it has gone.
_PROGRESS = ("last_epoch", "base_lrs")
_NUMBERS = (bool, int, float, str, type(None))
_MOST = 256  # entries of a list or a dictionary


def are_equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    return _settings(one) == _settings(other)


def _settings(scheduler: Any) -> dict[str, Any]:
    attributes: Any = getattr(scheduler, "__dict__", {})
    return {
        name: _plain(value)
        for name, value in list(attributes.items())
        if name not in _PROGRESS and not name.startswith("_")
    }


def _plain(value: Any) -> Any:
    """What can be compared without running code of the user's."""
    if type(value) in _NUMBERS:
        return value
    if isinstance(value, types.FunctionType):
        return value.__code__
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value[:_MOST]]
    if isinstance(value, dict) and len(value) <= _MOST:  # a Counter of milestones
        return {key: _plain(entry) for key, entry in value.items() if type(key) is int}
    return None
