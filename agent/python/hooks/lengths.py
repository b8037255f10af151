"""How many batches a pass over a loader has, without a call of the user's code that
draws.

The length of a sampler of the user's own may be counted by going through it, which
draws random numbers: the order of the training would be another one. Asked are samplers
of torch, and those of which the code of `__len__` goes through nothing.
"""

from __future__ import annotations

import dis
import types
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader, IterableDataset, Sampler

if TYPE_CHECKING:
    from typing import Any

_GOES_THROUGH = ("GET_ITER", "FOR_ITER", "GET_YIELD_FROM_ITER", "YIELD_VALUE")
_PLAIN = frozenset(
    "len int float round min max abs math ceil NotImplementedError TypeError".split()
)
_DEPTH = 4  # samplers within each other


def batches_of(loader: Any) -> int | None:
    """None: a stream, or it cannot be asked."""
    if not isinstance(loader, DataLoader):
        return None
    if type(loader).__len__ is not DataLoader.__len__:
        return None
    if isinstance(loader.dataset, IterableDataset):
        return None
    batches = loader.batch_sampler
    return length_of(loader.sampler if batches is None else batches)


def length_of(sampler: Any) -> int | None:
    """Of a sampler or a batch sampler."""
    if not _is_plain(sampler, _DEPTH):
        return None
    try:
        return int(len(sampler))
    except Exception:  # a length of the user's
        return None


def _is_plain(sampler: Any, depth: int) -> bool:
    mro = type(sampler).__mro__
    owner = next((cls for cls in mro if "__len__" in vars(cls)), None)
    if owner is None or depth == 0:
        return False
    for inner in list(getattr(sampler, "__dict__", {}).values()):
        if isinstance(inner, Sampler) and not _is_plain(inner, depth - 1):
            return False
    of_torch = owner.__module__.split(".")[0] in ("torch", "builtins")
    return of_torch or _is_read_off(mro, vars(owner)["__len__"])


def _is_read_off(mro: tuple[type[Any], ...], length: Any) -> bool:
    """Is it code that calls nothing but the lengths of what it has?"""
    code = getattr(length, "__code__", None)
    if not isinstance(code, types.CodeType):
        return False
    if any(isinstance(one, types.CodeType) for one in code.co_consts):
        return False
    for line in dis.get_instructions(code):
        if line.opname in _GOES_THROUGH:
            return False
        if line.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            if line.argval not in _PLAIN and not str(line.argval).isupper():
                return False
    return not any(_is_computed(mro, name) for name in code.co_names)


def _is_computed(mro: tuple[type[Any], ...], name: str) -> bool:
    """Is it a method or a property of the class?"""
    values = (vars(cls)[name] for cls in mro if name in vars(cls))
    return any(hasattr(type(value), "__get__") for value in values)
