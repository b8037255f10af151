"""Classes that the user has written, as far as modules hold them, and these modules."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

from _traincheck.sources import is_of_user

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Packages that many copy their averages from.
_MODULES = ("diffusers.training_utils", "torch_ema.ema")
_OWN = "_traincheck."


def user_classes() -> list[type[Any]]:
    """Of the user's modules, and of some packages that keep averages."""
    found: dict[int, type[Any]] = {}
    for names in user_modules():
        for value in list(names.values()):
            # isinstance() would run properties of the user's objects.
            if issubclass(type(value), type):
                found[id(value)] = value
    return list(found.values())


def user_modules() -> Iterator[dict[str, Any]]:
    """What they define, by name."""
    for module in list(sys.modules.values()):
        names = module.__dict__ if type(module) is types.ModuleType else {}
        if _is_looked_through(names):
            yield names


def _is_looked_through(names: dict[str, Any]) -> bool:
    name, path = names.get("__name__"), names.get("__file__")
    if name in _MODULES or name == "__main__":
        return True
    if isinstance(name, str) and name.startswith(_OWN):
        return False
    return isinstance(path, str) and is_of_user(path)
