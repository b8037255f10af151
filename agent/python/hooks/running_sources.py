"""The source of what runs while a model is trained: the code that steps the optimizer,
forwards of the user's modules, data sets, and what these call by name. Installed
packages and other projects are left alone: how they are written is not the user's.
"""

from __future__ import annotations

import ast
import types
from typing import NamedTuple
from typing import TYPE_CHECKING

from _traincheck.branches import settings_of
from _traincheck.module_content import modules_in
from _traincheck.projects import is_of_another_project
from _traincheck.sources import definition_of, frames, is_of_user, own_nodes
from _traincheck.subsets import whole_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType
    from typing import Any

    from _traincheck.models import Models
    from _traincheck.source_files import Definition
    from _traincheck.sources import Body

MOST_FUNCTIONS = 400
_MOST_OWNERS = 16  # modules, or data sets, of a class


class Source(NamedTuple):
    """Of a function."""

    definition: Definition
    names: dict[str, Any]  # what those of its module mean

    @property
    def body(self) -> Body:
        return self.definition.body


class Owned(NamedTuple):
    source: Source
    owners: list[Any]  # modules, or settings of data sets, whose method it is


class RunningSources:
    def __init__(self, models: Models) -> None:
        self._models = models
        # Settings of data sets, by their classes.
        self._data: dict[type[Any], list[Any]] = {}
        self._functions: list[Any] = []  # that make batches

    def pass_begins(self, loader: Any) -> None:
        data = whole_of(getattr(loader, "dataset", None))
        if type(data) not in self._data:
            self._functions.append(getattr(loader, "collate_fn", None))
        known = self._data.setdefault(type(data), [])
        if len(known) < _MOST_OWNERS:
            known.append(settings_of(data))

    def take(self) -> list[Owned]:
        """To be called where an optimizer steps, once: what was kept for it goes."""
        found = [
            Owned(source, [])
            for frame in frames()
            if (source := _source(frame.f_code, frame.f_globals)) is not None
        ]
        for cls, owners in (self._data | self._modules()).items():
            methods: dict[str, Any] = {}
            for base in reversed(cls.__mro__):
                methods.update(vars(base))
            sources = map(_source_of, methods.values())
            found += [Owned(one, owners) for one in sources if one is not None]
        makers = map(_source_of, self._functions)
        found += [Owned(one, []) for one in makers if one is not None]
        self._data, self._functions = {}, []
        return found

    def _modules(self) -> dict[type[Any], list[Any]]:
        """By their classes, some of each."""
        found: dict[type[Any], list[Any]] = {}
        for model in self._models.all():
            root = model.root()
            for part in modules_in(root) if root is not None else ():
                some = found.setdefault(type(part), [])
                if len(some) < _MOST_OWNERS:
                    some.append(part)
        return found


def with_callees(sources: list[Source]) -> Iterator[Source]:
    """These, and functions of the user's that they call by name, and so on."""
    seen: set[int] = set()
    todo = list(sources)
    while todo and len(seen) < MOST_FUNCTIONS:
        source = todo.pop()
        if id(source.definition) in seen:
            continue
        seen.add(id(source.definition))
        yield source
        for node in own_nodes(source.body):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called = _source_of(source.names.get(node.func.id))
                todo += [called] if called is not None else []


def _source_of(function: Any) -> Source | None:
    if not isinstance(function, types.FunctionType):
        return None
    return _source(function.__code__, function.__globals__)


def _source(code: CodeType, names: dict[str, Any]) -> Source | None:
    """None: it is not the user's, or cannot be read."""
    path = code.co_filename
    if not is_of_user(path) or is_of_another_project(path):
        return None
    definition = definition_of(code)
    return None if definition is None else Source(definition, names)
