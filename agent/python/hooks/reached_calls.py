"""Calls of one kind in code of the user's that may have run: of torch's functions, of
modules that a model of the user's has, and of the classes of such modules."""

from __future__ import annotations

import ast
import re
import sys
import types
from typing import NamedTuple, TYPE_CHECKING

import torch

from _traincheck.call_shapes import fits
from _traincheck.reached_code import calls_in
from _traincheck.sources import is_of_user, meaning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from traincheck_core import Core

    from _traincheck.call_kinds import Kind
    from _traincheck.call_shapes import Shape
    from _traincheck.reached_code import Code, ReachedCode

_MOST_FILES = 64  # of packages, that are looked through
# Their functions have names of torch's, and give no tensors.
_NO_TENSORS = frozenset(("cmath", "math", "numpy", "statistics"))
_CALLABLES = (type, types.BuiltinFunctionType, types.FunctionType)


class Use(NamedTuple):
    call: ast.Call
    code: Code
    name: str  # of the function, or of the class of torch.nn


class ReachedCalls:
    def __init__(
        self,
        core: Core,
        code: ReachedCode,
        modules: list[torch.nn.Module],
        kind: Kind,
        shape: Shape | None,
    ) -> None:
        self._core = core
        self._code = code
        self._modules = modules
        self._kind = kind
        self._shape = shape
        self._packages = {type(module).__module__ for module in modules}
        self.functions: list[Use] = []
        self.called: list[Use] = []  # modules of a model
        self.made: list[Use] = []  # modules, whosever they are
        for one in code.found:
            children = self._children(one.owner)
            for node in one.nodes():
                if isinstance(node, ast.Call):
                    self._see(node, one, children)

    def are_in_packages(self) -> bool:
        """May code of an installed package do it, of a model or of what is called?"""
        files = _files_of(self._packages)
        words = "|".join(sorted(self._kind.functions | self._kind.modules))
        wanted = re.compile(rf"\b(?:{words})\(")
        return len(files) > _MOST_FILES or any(
            wanted.search(_text_of(path)) for path in files
        )

    def _children(self, owner: Any) -> dict[str, str]:
        """Attributes of this class's modules that do it, and their classes of
        torch.nn."""
        if not issubclass(type(owner), type):
            return {}
        return {
            name: base
            for module in self._modules
            if owner in type(module).__mro__
            for name, child in module._modules.items()
            for base in _bases(type(child), self._kind.modules | self._kind.holders)
        }

    def _see(self, call: ast.Call, code: Code, children: dict[str, str]) -> None:
        attribute = _own_attribute(call.func)
        if attribute in children:
            self.called.append(Use(call, code, children[attribute]))
            return
        known = meaning(call.func, code.names)
        is_method = False
        if issubclass(type(known), _CALLABLES) or self._core.is_wrapper(known):
            module = str(known.__module__ or "torch")
            self._packages.add(module)
            names = [known.__name__] if _is_of_torch(module) else []
            if issubclass(type(known), type):
                names += _bases(known, self._kind.modules)
        else:
            names = list(self._names_of(call.func, code))
            is_method = _is_method(call.func, code)
        for name in names[:1]:
            self._add(Use(call, code, name), is_method)

    def _names_of(self, called: ast.expr, code: Code) -> Iterator[str]:
        """Of what nothing but its name says what it is."""
        if isinstance(called, ast.Name):
            yield called.id
        elif isinstance(called, ast.Attribute):
            owner = meaning(called.value, code.names)
            is_module = issubclass(type(owner), types.ModuleType)
            package = owner.__name__.partition(".")[0] if is_module else ""
            attribute = _own_attribute(called)
            is_own = attribute and self._code.defines(code.owner, attribute)
            if package not in _NO_TENSORS and not is_own:
                yield called.attr

    def _add(self, use: Use, is_method: bool) -> None:
        kind = self._kind
        if use.name in kind.functions:
            is_beside = not kind.beside or kind.beside & calls_in(use.code)
            if is_beside and fits(use.call, is_method, kind, self._shape):
                self.functions.append(use)
        elif use.name in kind.modules and fits(use.call, True, kind, self._shape):
            self.made.append(use)


def _bases(cls: type[Any], names: frozenset[str]) -> Iterator[str]:
    """Classes of torch's of these names that it is one of."""
    for base in cls.__mro__:
        if base.__name__ in names and _is_of_torch(base.__module__):
            yield base.__name__


def _own_attribute(called: ast.expr) -> str:
    """NAME, of self.NAME."""
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
        return ""
    return called.attr if called.value.id == "self" else ""


def _is_method(called: ast.expr, code: Code) -> bool:
    """Is it called on a value, and not on a module of Python's?"""
    if not isinstance(called, ast.Attribute):
        return False
    owner = meaning(called.value, code.names)
    return not issubclass(type(owner), types.ModuleType)


def _text_of(path: str) -> str:
    """linecache would keep it."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _is_of_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"


def _files_of(names: set[str]) -> set[str]:
    """Of these modules of packages that use torch, and of those of the same packages
    whose functions and classes they have; one too many: there may be more."""
    files: set[str] = set()
    todo, seen = list(names), set(names)
    while todo and len(files) <= _MOST_FILES:
        name = todo.pop()
        module = sys.modules.get(name)
        own = module.__dict__ if type(module) is types.ModuleType else {}
        path = own.get("__file__")
        if not isinstance(path, str) or not path.endswith(".py"):
            continue
        if _is_of_torch(name) or is_of_user(path):
            continue
        if any(value is torch for value in list(own.values())):
            files.add(path)
        beside = set(_modules_in(own, name.partition(".")[0])) - seen
        seen |= beside
        todo += beside
    return files


def _modules_in(names: dict[str, Any], package: str) -> Iterator[str]:
    """Modules of this package of which there is something among these names."""
    for value in list(names.values()):
        if issubclass(type(value), types.ModuleType):
            name = value.__name__
        elif issubclass(type(value), _CALLABLES):
            name = str(value.__module__)
        else:
            continue
        if name.partition(".")[0] == package:
            yield name
