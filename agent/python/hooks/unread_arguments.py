"""Masks, lengths and ends of episodes that a function is given and never reads.

    def forward(self, x, mask):        states, actions, rewards, after, done = batch
        return self.attend(x)          target = rewards + gamma * values(after).max(1)

Whoever hands them on means them to count. Looked at are the functions that train (see
running_sources.py) and methods beside them; the names say what is handed on. A parameter
with a default may be left out, and so may what a caller hands on from such a parameter.
A method that another class has too may be given what only that one needs. Of several
functions that take a batch apart one may need the ends of episodes; an environment says
after each step whether an episode is over.
"""

from __future__ import annotations

import ast
from typing import NamedTuple, TYPE_CHECKING

from _traincheck.branches import statements_of
from _traincheck.metric_names import last_name, words_of
from _traincheck.running_sources import MOST_FUNCTIONS, Source
from _traincheck.source_files import file_of
from _traincheck.sources import own_nodes, site_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _traincheck.running_sources import Owned
    from _traincheck.source_files import Definition
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


class _Name(NamedTuple):
    text: str
    line: int
    is_parameter: bool  # else it is unpacked from a batch


class _Unread(NamedTuple):
    source: Source
    name: _Name


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
        optional = _optional_in_calls(list(sources.values()))
        unpacked: list[_Unread] = []
        for number, source in sources.items():
            function = source.definition
            if not isinstance(function, _FUNCTIONS) or function.name not in called:
                continue
            given = optional.get(function.name, frozenset())
            some = owners.get(number) or [None]
            self._look_at(source, _parameters_of(function, given), some)
            unpacked += self._look_at(source, _unpacked_in(function), some)
        # One function may need the ends of episodes of a batch, and another not.
        if self.said is None and unpacked:
            self._say(unpacked[0])

    def _look_at(
        self, source: Source, names: list[_Name], owners: list[Any]
    ) -> list[_Unread]:
        """What is not read, and said where it is a parameter."""
        reads = [_reads(source, owner) for owner in owners] if names else []
        if _is_stub(source.definition) or not all(map(_TAKE_ALL.isdisjoint, reads)):
            return []
        unread = []
        for name in names:
            if any(name.text in some for some in reads):
                self.said = self.said or 0.0
            elif not _may_be_meant(source, name.text):
                unread.append(_Unread(source, name))
                if name.is_parameter and not self.said:
                    self._say(unread[-1])
        return unread

    def _say(self, unread: _Unread) -> None:
        names, line = unread.source.names, unread.name.line
        self.said, self.site = 1.0, site_of(self._core, names, line)


def _parameters_of(function: Function, optional: frozenset[str]) -> list[_Name]:
    """optional: what callers may have been given or not."""
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args]
    required = given[: len(given) - len(arguments.defaults)]
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        required += [one] if default is None else []
    return [
        _Name(one.arg, one.lineno, is_parameter=True)
        for one in required
        if _last_word(one.arg) in _OF_PARAMETERS
        and words_of(one.arg).isdisjoint(_SPLITS)
        and one.arg not in optional
    ]


def _unpacked_in(function: Function) -> list[_Name]:
    found: list[tuple[str, int]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_batch(node.value):
            found += _ends_among(node.targets[0])
        elif isinstance(node, ast.For):
            found += _ends_among(node.target)
    return [_Name(*one, is_parameter=False) for one in found]


def _optional_in_calls(sources: list[Source]) -> dict[str, frozenset[str]]:
    """By the names of functions: names that each caller hands on from a parameter of
    its own that may be left out (mask=None)."""
    found: dict[str, set[str]] = {}
    for source in sources:
        function = source.definition
        may_lack = _with_defaults(function)
        for node in own_nodes(source.body):
            if isinstance(node, ast.Call):
                given = {one.id for one in node.args if isinstance(one, ast.Name)}
                given |= {one.arg for one in node.keywords if one.arg}
                lacks = given & may_lack
                name = last_name(node.func)
                found[name] = found.get(name, lacks) & lacks
    return {name: frozenset(names) for name, names in found.items()}


def _with_defaults(function: Definition) -> set[str]:
    if not isinstance(function, _FUNCTIONS):
        return set()
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args]
    found = {one.arg for one in given[len(given) - len(arguments.defaults) :]}
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults)
    return found | {one.arg for one, default in pairs if default is not None}


def _ends_among(target: ast.expr) -> Iterator[tuple[str, int]]:
    for one in target.elts if isinstance(target, ast.Tuple) else ():
        if isinstance(one, ast.Name) and _last_word(one.id) in _ENDS:
            yield one.id, one.lineno


def _is_batch(value: ast.expr) -> bool:
    return not isinstance(value, ast.Call) or last_name(value.func) in _BATCHES


def _last_word(name: str) -> str:
    return "" if name.startswith("_") else name.rpartition("_")[2]


def _is_stub(function: Definition) -> bool:
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
