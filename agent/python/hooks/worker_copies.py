"""Data sets that are changed while persistent workers hold copies of them.

Workers that live on over several passes have the data set as it was when they began.
What a training changes on its own copy afterwards (set_epoch, the stage of a
curriculum) never reaches them. Counted are numbers, bools and texts among the
attributes of the data set and of those that it wraps, and tensors of one element that
are not in shared memory. What the sampler reads, in the main process, and no code that
workers run, they need not know.
"""

from __future__ import annotations

import dis
import types
from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.own_code import codes_of

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter as LoaderIterator

    Settings = dict[tuple[int, str], Any]

# Name of the scalar: 1 if a setting has changed since the workers began.
NAME = "loader.workers_hold_old"
_DEPTH = 4  # data sets within each other
_ATTRIBUTES = 64  # of each
_LONGEST = 256  # text
# Where workers begin to run the code of a data set.
_ENTRIES = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__")
_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")


class WorkerCopies:
    def __init__(self) -> None:
        # As the data set was when the workers of the iterator began.
        self._began: WeakIdentityMap[LoaderIterator, Settings] = WeakIdentityMap()

    def pass_begins(
        self, loader: DataLoader[Any], iterator: LoaderIterator
    ) -> float | None:
        """None: its workers begin now, or it has none that stay."""
        if not getattr(loader, "persistent_workers", False) or not loader.num_workers:
            return None
        now = _settings(loader.dataset)
        began = self._began.get(iterator)
        if began is None:
            self._began.set(iterator, now)
            return None
        # A value that is there for the first time may be computed and kept.
        both = began.keys() & now.keys()
        changed = {key[1] for key in both if not _same(began[key], now[key])}
        return float(bool(changed) and bool(changed - _of_sampler(loader)))


def _same(before: Any, now: Any) -> bool:
    """NaN is not equal to itself."""
    return bool(before == now or (before != before and now != now))


def _of_sampler(loader: DataLoader[Any]) -> set[str]:
    """Names of attributes that its own sampler's code reads, and that of no worker."""
    found: set[str] = set()
    for sampler in (loader.sampler, loader.batch_sampler):
        for code in codes_of(type(sampler)) if sampler is not None else ():
            found |= _loaded_by(code)
    return found - _names_read(loader) if found else found


def _names_read(loader: DataLoader[Any]) -> set[str]:
    """Of attributes, in the code that workers run, of data sets within each other."""
    methods: dict[str, list[types.CodeType]] = {}
    dataset: Any = loader.dataset
    for _ in range(_DEPTH):
        for cls in type(dataset).__mro__:
            for name, value in vars(cls).items():
                methods.setdefault(name, []).extend(_codes_of(value))
        dataset = getattr(dataset, "__dict__", {}).get("dataset")
    names = set(_ENTRIES)
    todo = [*names]
    codes = _codes_of(loader.collate_fn)
    while todo or codes:
        if not codes:
            codes = methods.get(todo.pop(), []).copy()
            continue
        found = _loaded_by(codes.pop()) - names
        names |= found
        todo += found
    return names


def _codes_of(value: Any) -> list[types.CodeType]:
    """Of a function, a method, or a property."""
    inner = [getattr(value, name, None) for name in ("__func__", "fget", "func")]
    codes = [getattr(one, "__code__", None) for one in (value, *inner)]
    return [code for code in codes if isinstance(code, types.CodeType)]


def _loaded_by(code: types.CodeType) -> set[str]:
    """Attributes that it and the functions within it read, by getattr, too."""
    names = {str(c) for c in code.co_consts if type(c) is str and c.isidentifier()}
    names |= {
        str(line.argval)
        for line in dis.get_instructions(code)
        if line.opname.startswith(_LOADS)
    }
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names |= _loaded_by(inner)
    return names


def _settings(dataset: Any) -> Settings:
    settings: Settings = {}
    for depth in range(_DEPTH):
        attributes = getattr(dataset, "__dict__", None)
        if type(attributes) is not dict:
            break
        for name in list(attributes)[:_ATTRIBUTES]:
            value = attributes[name]
            if type(value) is torch.Tensor and _is_own_number(value):
                settings[depth, name] = value.item()
            elif type(value) in (bool, int, float) or (
                type(value) is str and len(value) <= _LONGEST
            ):
                settings[depth, name] = value
        dataset = attributes.get("dataset")
    return settings


def _is_own_number(tensor: torch.Tensor) -> bool:
    """One that no worker shares."""
    return tensor.is_cpu and tensor.numel() == 1 and not tensor.is_shared()
