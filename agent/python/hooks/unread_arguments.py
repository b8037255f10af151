"""Masks, lengths and ends of episodes that a function is given and never reads.

    def forward(self, x, mask):        states, actions, rewards, after, done = batch
        return self.attend(x)          target = rewards + gamma * values(after).max(1)

Whoever hands them on means them to count. Looked at are the functions that train (see
running_sources.py) and methods beside them; the names say what is handed on. A parameter
with a default may be left out, a method that another class has too may be given what only
that one needs, and an environment says after each step whether an episode is over.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from _traincheck.branches import statements_of
from _traincheck.metric_names import last_name, words_of
from _traincheck.running_sources import MOST_FUNCTIONS, Source
from _traincheck.source_files import file_of
from _traincheck.sources import site_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _traincheck.running_sources import Owned
    from traincheck_core import Core

    Function = ast.FunctionDef | ast.AsyncFunctionDef

NAME = "opt.argument_unread"  # of the scalar of an optimizer

_MASKS = frozenset(("mask", "masks"))
_LENGTHS = frozenset(("lengths", "lens"))
# Of a graph's nodes: what is trained with, and what is held out.
_SPLITS = frozenset("dev eval test train val valid validation".split())
_ENDS = frozenset(("done", "dones", "terminal", "terminals", "terminated"))
_OF_PARAMETERS = _MASKS | _LENGTHS | _ENDS
# What gives a batch. An environment, too, is asked for ends, after each of its steps, and
# its episodes may have none.
_BATCHES = frozenset("batch get_batch map next sample sample_batch zip".split())
# A function that pads needs to know how far, and no mask.
_PADS = frozenset(("pad", "padded", "padding", "pads"))
_BLOCKS = frozenset(("body", "orelse", "finalbody", "handlers", "cases"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NESTED = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
_TAKE_ALL = frozenset(("locals", "vars", "eval", "exec"))
_PLAIN_BASES = frozenset(("Dataset", "IterableDataset", "Module", "object"))


class UnreadArguments:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.said: float | None = None  # 1: something is not read
        self.site = 0  # where it is named; 0: not known

    def look(self, own: list[Owned], running: list[Source]) -> None:
        """Called once, with the sources of what runs, and of what it calls as well."""
        owners = {id(source.definition): some for source, some in own}
        sources = {id(one.definition): one for one in running}
        for one in running:
            cls = _class_of(one)
            for method in () if cls is None else cls.body:
                if isinstance(method, _FUNCTIONS) and len(sources) < MOST_FUNCTIONS:
                    sources.setdefault(id(method), Source(method, one.names))
        called = _called(list(sources.values()))
        for number, source in sources.items():
            function = source.definition
            if isinstance(function, _FUNCTIONS) and function.name in called:
                self._look_at(source, owners.get(number) or [None])

    def _look_at(self, source: Source, owners: list[Any]) -> None:
        function = source.definition
        if not isinstance(function, _FUNCTIONS) or _is_stub(function):
            return
        names = list(_handed_on(function))
        reads = [_reads(source, owner) for owner in owners] if names else []
        if not all(map(_TAKE_ALL.isdisjoint, reads)):
            return
        for name, line in names:
            if any(name in some for some in reads):
                self.said = self.said or 0.0
            elif not self.said and not _may_be_meant(source, name):
                self.said, self.site = 1.0, site_of(self._core, source.names, line)


def _handed_on(function: Function) -> Iterator[tuple[str, int]]:
    """Names with their lines."""
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args]
    required = given[: len(given) - len(arguments.defaults)]
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        required += [one] if default is None else []
    for one in required:
        words = words_of(one.arg)
        if _last_word(one.arg) in _OF_PARAMETERS and words.isdisjoint(_SPLITS):
            yield one.arg, one.lineno
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_batch(node.value):
            yield from _ends_among(node.targets[0])
        elif isinstance(node, ast.For):
            yield from _ends_among(node.target)


def _ends_among(target: ast.expr) -> Iterator[tuple[str, int]]:
    for one in target.elts if isinstance(target, ast.Tuple) else ():
        if isinstance(one, ast.Name) and _last_word(one.id) in _ENDS:
            yield one.id, one.lineno


def _is_batch(value: ast.expr) -> bool:
    return not isinstance(value, ast.Call) or last_name(value.func) in _BATCHES


def _last_word(name: str) -> str:
    return "" if name.startswith("_") else name.rpartition("_")[2]


def _is_stub(function: Function) -> bool:
    """Does it only raise, or return something that is known?"""
    return all(
        isinstance(one, (ast.Raise, ast.Pass))
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        or (isinstance(one, ast.Return) and not isinstance(one.value, ast.Call))
        for one in function.body
    )


def _reads(source: Source, owner: Any) -> set[str]:
    """Names that a function of this owner reads."""
    found = set()
    for node in _nodes(source, owner):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def _nodes(source: Source, owner: Any) -> Iterator[ast.AST]:
    for statement in statements_of(source.body, owner):
        for field, value in ast.iter_fields(statement):
            if field not in _BLOCKS:
                for part in value if isinstance(value, list) else [value]:
                    yield from ast.walk(part) if isinstance(part, ast.AST) else ()
    for node in ast.walk(source.definition):
        if isinstance(node, _NESTED) and node is not source.definition:
            yield from ast.walk(node)


def _called(sources: list[Source]) -> set[str]:
    """Names of what is called there, and of what torch calls."""
    return {"forward"} | {
        last_name(node.func)
        for source in sources
        for node in ast.walk(source.definition)
        if isinstance(node, ast.Call)
    }


def _may_be_meant(source: Source, name: str) -> bool:
    """Is it there for others that are called in the same way?"""
    if not words_of(getattr(source.definition, "name", "")).isdisjoint(_PADS):
        return True
    cls = _class_of(source)
    bases = () if cls is None else map(last_name, cls.bases)
    return not set(bases) <= _PLAIN_BASES or _is_read_elsewhere(source, name)


def _is_read_elsewhere(source: Source, name: str) -> bool:
    """By a function of the same name, as of a class that can be put in its place."""
    own = source.definition
    return any(
        isinstance(node, ast.Name) and node.id == name
        for some in file_of(_path_of(source)).functions.values()
        for other, definition in some.items()
        if other == getattr(own, "name", "") and definition is not own
        for node in ast.walk(definition)
    )


def _class_of(source: Source) -> ast.ClassDef | None:
    """Whose method it is."""
    return file_of(_path_of(source)).owners.get(id(source.definition))


def _path_of(source: Source) -> str:
    path = source.names.get("__file__")
    return path if isinstance(path, str) else ""
