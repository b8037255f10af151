"""What the code of a class of the user's refers to, read without running it."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_WRAPPERS = 8  # around each other


def codes_of(cls: type[Any]) -> list[types.CodeType]:
    """Of its methods, and of those that it inherits from classes that are not torch's."""
    own: list[type[Any]] = [one for one in cls.__mro__ if not _is_of_torch(one)]
    values = [value for one in own for value in vars(one).values()]
    codes = [getattr(_unwrapped(value), "__code__", None) for value in values]
    return [code for code in codes if isinstance(code, types.CodeType)]


def _unwrapped(value: Any) -> Any:
    """The function behind wrappers of ours and of torch."""
    for _ in range(_WRAPPERS):
        inner = getattr(value, "__wrapped__", None)
        if not callable(inner):
            break
        value = inner
    return value


def _is_of_torch(one: type[Any]) -> bool:
    return one is object or one.__module__.split(".")[0] == "torch"
