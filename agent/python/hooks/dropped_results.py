"""Statements of the user's code that do nothing: a function's result that is dropped,
a method that is named and not called.

    mask.masked_fill(hidden, 0)     np.fliplr(image)     model.eval

None of them changes what it is given, unless NumPy is given where to write, or a class
of the user's has a method of that name. Looked at is the source of what runs: the code
that steps the optimizer, what that calls by name, forwards of the user's modules, and
data sets. Installed packages are left alone, and branches that a setting of the object
rules out (`if self.fixed:`).

Functions of autograd that change nothing act by their results alone, too
(dropped_functions.py).
"""

from __future__ import annotations

import ast
import itertools
import sys
import types
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from _traincheck.branches import settings_of, statements_of
from _traincheck.dropped_functions import dropped_function
from _traincheck.sources import (
    frames,
    functions_of,
    is_of_user,
    meaning,
    own_nodes,
    site_of,
)
from _traincheck.subsets import whole_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType
    from typing import Any

    from _traincheck.models import Models
    from _traincheck.sources import Body
    from traincheck_core import Core

    # A function's source, and what its names mean.
    Source = tuple[Body, dict[str, Any]]

# Name of the scalar of an optimizer.
NAME = "opt.result_dropped"

_MOST_FUNCTIONS = 400
_MOST_OWNERS = 16  # modules, or data sets, of a class
# Of tensors; nothing else has methods of these names.
_METHODS = frozenset(
    """clamp_max clamp_min fliplr flipud index_fill log_softmax masked_fill
    masked_scatter nan_to_num rot90 scatter_add""".split()
)
# Of torch, NumPy and torch.nn.functional.
_FUNCTIONS = _METHODS | frozenset(
    """abs clamp clip exp flip log moveaxis multiply normalize permute roll round
    sigmoid softmax sqrt squeeze swapaxes tanh transpose unsqueeze where""".split()
)
# Of NumPy's, how many arguments go in; the next one is written to, or asks for that.
_INPUTS = {
    "abs": 1,
    "clip": 3,
    "exp": 1,
    "log": 1,
    "multiply": 2,
    "nan_to_num": 1,
    "round": 2,
    "sqrt": 1,
    "tanh": 1,
}
_WRITES = (None, "copy", "inplace", "out")  # keywords, and **
_NEVER_NAMED = frozenset(("backward", "eval", "step", "train", "zero_grad"))


class DroppedResults:
    def __init__(self, core: Core, models: Models) -> None:
        self._core = core
        self._models = models
        # Settings of data sets, by their classes.
        self._data: dict[type[Any], list[Any]] = {}
        self._functions: list[Any] = []  # that make batches
        self._said: float | None = None
        self._site = 0  # of the statement
        self._looked = False

    def pass_begins(self, loader: Any) -> None:
        if self._looked:
            return
        data = whole_of(getattr(loader, "dataset", None))
        if type(data) not in self._data:
            self._functions.append(getattr(loader, "collate_fn", None))
        known = self._data.setdefault(type(data), [])
        if len(known) < _MOST_OWNERS:
            known.append(settings_of(data))

    def look(self) -> float | None:
        """1: a statement does nothing; None: no source is to be had."""
        if not self._looked:
            self._looked = True
            own = self._sources()
            bodies = list(_with_callees([source for source, _ in own]))
            if bodies:
                self._said = float(self._finds(bodies, own))
            functions_of.cache_clear()
            self._data, self._functions = {}, []
        return self._said

    def site(self) -> float | None:
        """Where the statement stands; None: there is none, or that is not known."""
        return float(self._site) or None

    def _finds(self, bodies: list[Source], own: list[tuple[Source, list[Any]]]) -> bool:
        in_place = _methods_of_user()
        owners_of: dict[int, list[Any]] = {}
        for (body, _), owners in own:
            owners_of.setdefault(id(body), []).extend(owners)
        found = (
            (_dropped(*one, owners_of.get(id(one[0]), []), in_place), one)
            for one in bodies
        )
        # Not of what is called by name: that may measure a function's time.
        more = ((dropped_function(*source, owners), source) for source, owners in own)
        for statement, (_, names) in itertools.chain(found, more):
            if statement is not None:
                self._site = site_of(self._core, names, statement.lineno)
                return True
        return False

    def _sources(self) -> list[tuple[Source, list[Any]]]:
        """With modules, or settings of data sets, whose methods they are."""
        found: list[tuple[Source | None, list[Any]]]
        found = [(_source(frame.f_code, frame.f_globals), []) for frame in frames()]
        owned = self._data | self._modules()
        for cls, owners in owned.items():
            methods: dict[str, Any] = {}
            for base in reversed(cls.__mro__):
                methods.update(vars(base))
            found += [(_source_of(one), owners) for one in methods.values()]
        found += [(_source_of(one), []) for one in self._functions]
        return [(source, owners) for source, owners in found if source is not None]

    def _modules(self) -> dict[type[Any], list[Any]]:
        """By their classes, some of each."""
        found: dict[type[Any], list[Any]] = {}
        for model in self._models.all():
            root = model.root()
            for part in root.modules() if root is not None else ():
                some = found.setdefault(type(part), [])
                if len(some) < _MOST_OWNERS:
                    some.append(part)
        return found


def _source_of(function: Any) -> Source | None:
    if not isinstance(function, types.FunctionType):
        return None
    return _source(function.__code__, function.__globals__)


def _source(code: CodeType, names: dict[str, Any]) -> Source | None:
    """None: it is not the user's, or cannot be read."""
    path = code.co_filename
    if not is_of_user(path):
        return None
    body = functions_of(path).get(code.co_firstlineno, {}).get(code.co_name)
    return None if body is None else (body, names)


def _with_callees(sources: list[Source]) -> Iterator[Source]:
    """These, and functions of the user's that they call by name, and so on."""
    seen: set[int] = set()
    todo = list(sources)
    while todo and len(seen) < _MOST_FUNCTIONS:
        body, names = todo.pop()
        if id(body) in seen:
            continue
        seen.add(id(body))
        yield body, names
        for node in own_nodes(body):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called = _source_of(names.get(node.func.id))
                todo += [called] if called is not None else []


def _methods_of_user() -> set[str]:
    """Names in _METHODS of methods that classes in the user's modules define."""
    found: set[str] = set()
    for module in list(sys.modules.values()):
        names = module.__dict__ if type(module) is types.ModuleType else {}
        path = names.get("__file__")
        is_main = names.get("__name__") == "__main__"
        if is_main or (isinstance(path, str) and is_of_user(path)):
            for value in list(names.values()):
                # isinstance() would run properties of the user's objects.
                if issubclass(type(value), type):
                    found |= _own_names(value, names.get("__name__"))
    return found


def _own_names(kind: type[Any], module: Any) -> set[str]:
    """Of its methods that are in _METHODS; none if another module defines it."""
    names = vars(kind)
    own = names.get("__module__") == module
    return {name for name in _METHODS if own and name in names}


def _dropped(
    body: Body, names: dict[str, Any], owners: list[Any], in_place: set[str]
) -> ast.Expr | None:
    """owners: whose method it is; in_place: methods that may change what they are called
    on."""
    found = _first_dropped(body, names, None, in_place)
    if found is None or not owners:
        return found
    each = (_first_dropped(body, names, owner, in_place) for owner in owners)
    return next((one for one in each if one is not None), None)


def _first_dropped(
    body: Body, names: dict[str, Any], owner: Any, in_place: set[str]
) -> ast.Expr | None:
    for one in statements_of(body, owner):
        if isinstance(one, ast.Expr) and _does_nothing(one.value, names, in_place):
            return one
    return None


def _does_nothing(value: ast.expr, names: dict[str, Any], in_place: set[str]) -> bool:
    if isinstance(value, ast.Attribute):
        return value.attr in _NEVER_NAMED
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if any(keyword.arg in _WRITES for keyword in value.keywords):
        return False
    owner = meaning(value.func.value, names)
    if isinstance(owner, types.ModuleType):
        numpy = sys.modules.get("numpy")
        if owner is numpy and _is_given_a_place(value, value.func.attr):
            return False
        known = owner in (torch, functional, numpy)
        return known and value.func.attr in _FUNCTIONS
    return value.func.attr in _METHODS - in_place


def _is_given_a_place(call: ast.Call, name: str) -> bool:
    """Has NumPy's function an argument beyond its inputs, by position?"""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    return name in _INPUTS and len(call.args) > _INPUTS[name]
