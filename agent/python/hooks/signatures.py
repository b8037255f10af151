"""Parameters of functions: from their signature, else from what torch tells of
its C functions for those who override them (torch.overrides)."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any


class Parameter:
    """position: -1 by keyword only; default only with has_default."""

    __slots__ = ("name", "position", "has_default", "default")

    def __init__(
        self, name: str, position: int, has_default: bool, default: Any
    ) -> None:
        self.name = name
        self.position = position
        self.has_default = has_default
        self.default = default


class Signature:
    """Parameters in order, and where further positional arguments begin."""

    def __init__(self, parameters: list[Parameter], rest: int | None) -> None:
        self.parameters = parameters
        self.rest = rest  # None: there are none, and no further keywords


def of(fn: Any) -> Signature | None:
    """None: nobody tells."""
    found = _inspect(fn)
    if found is None:
        stand_in = _overridable().get(fn)
        found = _inspect(stand_in) if stand_in is not None else None
    return found


def _inspect(fn: Any) -> Signature | None:
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError):
        return None
    parameters, position, rest = [], 0, None
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = position
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            # Beyond the last positional one: keywords only.
            rest = position if rest is None else rest
            continue
        by_keyword = parameter.kind is parameter.KEYWORD_ONLY
        has_default = parameter.default is not parameter.empty
        parameters.append(
            Parameter(
                parameter.name,
                -1 if by_keyword else position,
                has_default,
                parameter.default if has_default else None,
            )
        )
        position += not by_keyword
    return Signature(parameters, rest)


@functools.lru_cache(maxsize=1)
def _overridable() -> dict[Any, Any]:
    """Function -> a lambda with its signature. About 10 ms, once."""
    overrides = getattr(torch.overrides, "get_testing_overrides", dict)
    return overrides()
