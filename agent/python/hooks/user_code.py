"""The user's own code: classes below torch's, callables given to loaders, and
functions that are asked for by name (TRAINCHECK_WRAP).
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

import torch
from torch.utils.data import dataloader

from _traincheck import catalogue
from _traincheck import naming
from _traincheck import wrapping
from _traincheck.selection import read
from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader
    from traincheck_core import Args, Kwargs

    from _traincheck.selection import Row
    from _traincheck.watch import Watch

# (parameter of a loader, what it is)
_HANDED_OVER = (("collate_fn", "collate"), ("worker_init_fn", "worker_init"))


class _Kind:
    """Category and roles of what is wrapped here; see selection.Row."""

    def __init__(self, category: str, *roles: str) -> None:
        self.category, self.roles = category, roles


class UserCode:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        # module -> names in it that are asked for
        self.asked = _asked(watch.core.setting("TRAINCHECK_WRAP"))

    def watch_classes(self) -> None:
        """Wraps methods of user classes below torch's when they are made."""
        for row in read(catalogue.BASES):
            base = getattr(sys.modules.get(row.module), row.cls, None)
            if isinstance(base, type):
                self._watch_below(base, row)

    def _watch_below(self, base: type[Any], row: Row) -> None:
        own = base.__dict__.get("__init_subclass__")
        core = self._watch.core

        def __init_subclass__(cls: type[Any], **kwargs: Any) -> None:
            if own is not None:
                own.__get__(None, cls)(**kwargs)
            else:
                super(base, cls).__init_subclass__(**kwargs)
            quietly(core, self._made, cls, row)

        setattr(base, "__init_subclass__", classmethod(__init_subclass__))

    def _made(self, cls: type[Any], row: Row) -> None:
        if _is_torchs(cls.__module__):
            return
        for name, member in list(vars(cls).items()):
            if _is_private(name) or row.fits(name):
                continue
            wrapping.wrap_member(self._watch, cls, name, member, row)

    def loader_made(self, loader: DataLoader) -> None:
        """Wraps what the user has handed over to a DataLoader."""
        for name, role in _HANDED_OVER:
            fn = getattr(loader, name, None)
            if fn is None or wrapping.is_wrapped(self._watch.core, fn):
                continue
            kind = _Kind("data", role)
            if isinstance(fn, (types.FunctionType, types.MethodType)):
                names = [_name_of(fn), *kind.roles]
                if not _is_torchs(fn.__module__) and self._watch.planner.wraps(names):
                    # Neither the loader nor a pickle of it sees a difference.
                    wrapper = self._watch.core.wrap(
                        fn, names[0], kind.category, kind.roles, detail=True
                    )
                    self._watch.planner.add(wrapper, names, detail=True)
                    setattr(loader, name, wrapper)
            elif not _is_torchs(type(fn).__module__):
                self._wrap_call(type(fn), kind)

    def _wrap_call(self, cls: type[Any], kind: _Kind) -> None:
        """An object that is called: it keeps its identity and attributes."""
        call = cls.__dict__.get("__call__")
        if call is not None:
            wrapping.wrap_member(self._watch, cls, "__call__", call, kind)

    def wrap_asked(self, module: types.ModuleType) -> None:
        """Wraps the functions of this module that are asked for by name."""
        names = self.asked.get(module.__name__, set())
        for name in list(names):
            if self._wrap_by_name(module, name):
                names.discard(name)

    def _wrap_by_name(self, module: Any, name: str) -> bool:
        owner, _, last = name.rpartition(".")
        for part in filter(None, owner.split(".")):
            module = getattr(module, part, None)
        member = vars(module).get(last) if hasattr(module, "__dict__") else None
        kind = _Kind("user")
        if isinstance(module, type) and member is not None:
            wrapping.wrap_member(self._watch, module, last, member, kind)
        elif isinstance(member, types.FunctionType):
            wrapper = self._watch.core.wrap(
                member, _name_of(member), kind.category, (), detail=True
            )
            setattr(module, last, wrapping.stand_in(member, wrapper))
        return member is not None


def _asked(text: str) -> dict[str, set[str]]:
    """ "module:function,module:Class.method" by module."""
    asked: dict[str, set[str]] = {}
    for item in text.split(","):
        module, _, name = item.strip().partition(":")
        if module and name:
            asked.setdefault(module, set()).add(name)
    return asked


def _is_private(name: str) -> bool:
    special = name in ("__init__", "__getitem__", "__iter__", "__call__", "__next__")
    return name.startswith("_") and not special


def _is_torchs(module: str | None) -> bool:
    return module == "torch" or (module or "").startswith("torch.")


def _name_of(fn: Any) -> str:
    module = fn.__module__ if fn.__module__ != "__mp_main__" else "__main__"
    return f"{module}.{fn.__qualname__}"


def install(watch: Watch, user_code: UserCode) -> None:
    user_code.watch_classes()

    def made(
        token: Any, args: Args, kwargs: Kwargs, result: Any, error: BaseException | None
    ) -> None:
        if error is None:
            quietly(watch.core, user_code.loader_made, args[0])

    loader = dataloader.DataLoader
    wrapping.wrap_method(watch, loader, "__init__", "data", after=made)
