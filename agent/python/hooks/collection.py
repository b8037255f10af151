"""Full collection: wraps what the catalogue names for it.

All of it where TRAINCHECK_COLLECT asks for it, else what the plan names. Modules that are not imported yet
(parts of torch, frameworks) follow when they are: see imports.py.
"""

from __future__ import annotations

import gc
import sys
import types
from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck import wrapping
from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.selection import Catalogue
    from _traincheck.selection import Row
    from _traincheck.watch import Watch

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_C_METHODS = (types.MethodDescriptorType,)


class Collection:
    def __init__(self, watch: Watch, catalogue: Catalogue) -> None:
        self._watch = watch
        self._catalogue = catalogue

    def modules(self) -> dict[str, None]:
        return self._catalogue.modules()

    def add_all(self) -> None:
        """All modules that are here now."""
        for name in self._catalogue.modules():
            if name in sys.modules:
                self.add(sys.modules[name])

    def add(self, module: types.ModuleType) -> None:
        """Wraps what the catalogue names in this module."""
        for cls in self._catalogue.classes(module.__name__):
            if cls == "":
                self._add_functions(module)
            elif cls == "*":
                for value in list(vars(module).values()):
                    if _is_class_of(value, module):
                        self._add_methods(module.__name__, cls, value)
            else:
                value = getattr(module, cls, None)
                if isinstance(value, type):
                    self._add_methods(module.__name__, cls, value)

    def _add_functions(self, module: types.ModuleType) -> None:
        namespace = module.__name__
        for name, value in list(vars(module).items()):
            # By type(): some objects warn when they are asked for their class.
            if type(value) not in _FUNCTIONS or not _is_at_home(value, namespace):
                continue
            row = self._catalogue.find(namespace, "", name)
            if row is not None and id(value) not in self._watch.replaced:
                full_name = f"{namespace}.{name}"
                if self._watch.planner.wraps([full_name, *row.roles]):
                    wrapping.wrap_value(self._watch, value, full_name, row)

    def _add_methods(self, namespace: str, pattern: str, cls: type[Any]) -> None:
        members = dict(vars(cls))
        if cls is torch.Tensor:
            members = {**vars(torch._C.TensorBase), **members}
        first_names = {}
        for name, value in members.items():
            row = self._catalogue.find(namespace, pattern, name)
            if row is None:
                continue
            if isinstance(value, _C_METHODS):
                self._add_c_method(cls, name, value, row)
            elif id(value) not in first_names:
                if isinstance(value, types.FunctionType):
                    first_names[id(value)] = name
                wrap = wrapping.wrap_member
                quietly(self._watch.core, wrap, self._watch, cls, name, value, row)
        # One function may have several names (__rdiv__, __rtruediv__).
        for name, value in members.items():
            if id(value) in first_names:
                setattr(cls, name, getattr(cls, first_names[id(value)]))

    def _add_c_method(self, cls: type[Any], name: str, value: Any, row: Row) -> None:
        # One function may have several names (abs, __abs__).
        if id(value) not in self._watch.replaced:
            full_name = f"{naming.class_name(cls)}.{name}"
            names = [full_name, *row.roles]
            if not self._watch.planner.wraps(names):
                return
            wrapper = self._watch.core.wrap(
                value, full_name, row.category, row.roles, detail=True
            )
            self._watch.planner.add(wrapper, names, detail=True, tells=False)
            self._watch.replaced[id(value)] = (value, wrapper)
        if name in vars(cls):
            setattr(cls, name, self._watch.replaced[id(value)][1])


def _is_class_of(value: Any, module: types.ModuleType) -> bool:
    return issubclass(type(value), type) and value.__module__ == module.__name__


def _is_at_home(value: Any, namespace: str) -> bool:
    """Functions belong to the module that defines them, C functions to the
    public one that shows them."""
    if isinstance(value, types.BuiltinFunctionType):
        return (value.__module__ or "").startswith("torch")
    return bool(value.__module__ == namespace)


def reach_into_c(watch: Watch) -> None:
    """Puts the wrappers into torch's two classes in C that have its functions.

    Overrides (__torch_function__) get the function that is found there by its
    name and compare it with torch's; pickles name it so. The classes take no
    attributes, but their dictionaries do.
    """
    for cls in (type(torch._C._VariableFunctions), torch._C.TensorBase):
        (members,) = gc.get_referents(cls.__dict__)
        for name, value in list(members.items()):
            static = isinstance(value, staticmethod)
            pair = watch.replaced.get(id(value.__func__ if static else value))
            if pair is not None:
                members[name] = staticmethod(pair[1]) if static else pair[1]
        watch.core.type_modified(cls)


def tell_overrides() -> None:
    """Tables of what can be overridden were made before methods were replaced."""
    for table in vars(torch.overrides).values():
        if hasattr(table, "cache_clear"):
            table.cache_clear()


def tell_script(watch: Watch) -> None:
    """TorchScript knows torch's functions by their identity."""
    from torch.jit import _builtins

    for function, operator in list(_builtins._builtin_ops):
        pair = watch.replaced.get(id(function))
        if pair is not None:
            _builtins._builtin_ops.append((pair[1], operator))
    table = _builtins._builtin_table  # None as long as nobody has asked
    for function, operator in list((table or {}).items()):
        pair = watch.replaced.get(function)
        if pair is not None:
            table[id(pair[1])] = operator
