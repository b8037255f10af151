"""The user's functions that may have run in a forward that trains, by their source.

Those that run now, the methods of the model's classes, and all that these name, and so
on: every function of that name, whosever it is, since nothing says what a variable
holds. Left out is what leaves nothing in a graph: code under no_grad, data sets, and
what a function that runs now would reach behind its line only.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import types
from typing import TYPE_CHECKING

import torch

from _traincheck.branches import setting_of
from _traincheck.sources import frames, is_of_user

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    _Function = ast.FunctionDef | ast.AsyncFunctionDef

_MOST_FILES = 64
_MOST_LINES = 20_000  # of all of them
_BINARIES = (".pyd", ".so")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_WITHOUT_GRADIENT = frozenset(("inference_mode", "no_grad"))
# Whose methods run without gradients, or in other processes.
_NO_FORWARDS = (
    torch.autograd.Function,
    torch.utils.data.Dataset,
    torch.utils.data.Sampler,
)


class Code:
    """The body of a function, or of a module."""

    def __init__(
        self, body: list[ast.stmt], names: dict[str, Any], function: Any, owner: Any
    ) -> None:
        self._body = body
        self._until: int | None = None  # the line that runs now
        self._nodes: list[ast.AST] | None = None
        self.names = names  # of its module
        self.function = function  # None: a module's
        self.owner = owner  # the class whose method it is, its name, or None
        self.objects: list[Any] = []  # of this class, whose settings it goes by

    def runs_at(self, line: int) -> None:
        self._until = max(line, self._until or 0)

    def nodes(self) -> list[ast.AST]:
        """Of what may have left nodes in the graph; not of functions within."""
        if self._nodes is None:
            self._nodes = list(_own(self._body, self._until, self.objects))
        return self._nodes

    def parameters(self) -> set[str]:
        given = self.function.args if self.function is not None else None
        if given is None:
            return set()
        return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


class ReachedCode:
    """Made and dropped within one call."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self.is_whole = True  # have all of the user's files been read?
        self.found: list[Code] = []
        self._by_name: dict[str, list[Code]] = {}
        self._by_line: dict[tuple[str, int, str], Code] = {}
        self._of_class: dict[str, list[Code]] = {}
        self._of_files: list[Code] = []
        self._decorated: list[Code] = []  # maybe called by whom it was registered with
        self._reached: set[int] = set()
        self._read_files()
        self._reach(modules)

    def defines(self, owner: Any, name: str) -> bool:
        """Is it a method of the class?"""
        return any(code.owner is owner for code in self._by_name.get(name, ()))

    def _read_files(self) -> None:
        files = dict(_files_of_user())
        left = _MOST_LINES if len(files) <= _MOST_FILES else 0
        for path, names in files.items():
            lines = linecache.getlines(path)
            left -= len(lines)
            is_known = bool(lines) or _is_empty(path)
            tree = _tree(lines) if is_known and left >= 0 else None
            if tree is None:
                self.is_whole = False
                return
            self._read(tree, path, names)

    def _read(self, tree: ast.Module, path: str, names: dict[str, Any]) -> None:
        whole = Code(tree.body, names, None, None)
        self._of_files.append(whole)
        self._by_line[path, 1, "<module>"] = whole
        todo: list[tuple[ast.AST, Any]] = [(tree, None)]
        while todo:
            node, owner = todo.pop()
            if isinstance(node, _FUNCTIONS):
                self._add(node, path, names, owner)
                owner = None
            elif isinstance(node, ast.ClassDef):
                owner = names.get(node.name)
                if not issubclass(type(owner), type):
                    owner = node.name
            todo += [(child, owner) for child in ast.iter_child_nodes(node)]

    def _add(
        self, function: _Function, path: str, names: dict[str, Any], owner: Any
    ) -> None:
        is_class = issubclass(type(owner), type)
        if is_class and issubclass(owner, _NO_FORWARDS):
            return
        if any(map(_is_without_gradient, function.decorator_list)):
            return
        code = Code(function.body, names, function, owner)
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        self._by_line[path, first, function.name] = code
        self._by_name.setdefault(function.name, []).append(code)
        if function.decorator_list:
            self._decorated.append(code)
        if owner is not None:
            name = owner.__name__ if is_class else owner
            self._of_class.setdefault(name, []).append(code)

    def _reach(self, modules: Iterable[torch.nn.Module]) -> None:
        todo = list(self._running())
        running = {id(code) for code in todo}
        others = self._of_files + self._decorated
        todo += [code for code in others if id(code) not in running]
        for module in modules:
            for base in type(module).__mro__:
                for code in self._of_class.get(base.__name__, ()):
                    code.objects.append(module)
                    todo.append(code)
        while todo:
            code = todo.pop()
            if id(code) in self._reached:
                continue
            self._reached.add(id(code))
            self.found.append(code)
            for name in _named(code.nodes()):
                todo += self._by_name.get(name, ())
                todo += self._of_class.get(name, ())

    def _running(self) -> Iterator[Code]:
        for frame in frames():
            code = frame.f_code
            name = code.co_name
            found = self._by_line.get((code.co_filename, code.co_firstlineno, name))
            if found is not None:
                found.runs_at(frame.f_lineno)
                yield found


def _files_of_user() -> Iterator[tuple[str, dict[str, Any]]]:
    """With the names of their modules."""
    for name, module in list(sys.modules.items()):
        names = module.__dict__ if type(module) is types.ModuleType else {}
        path = names.get("__file__")
        if not isinstance(path, str) or name.startswith("_traincheck"):
            continue
        if is_of_user(path) and not path.startswith("<"):
            if not path.endswith(_BINARIES):
                yield path, names


def _is_empty(path: str) -> bool:
    """And not gone."""
    try:
        return os.path.getsize(path) == 0
    except OSError:
        return False


def _tree(lines: list[str]) -> ast.Module | None:
    """None: it cannot be read."""
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):  # it may have been changed
        return None


def _own(
    body: list[ast.stmt], until: int | None, objects: list[Any]
) -> Iterator[ast.AST]:
    todo: list[ast.AST] = list(_before(body, until))
    while todo:
        node = todo.pop()
        if isinstance(node, _FUNCTIONS):
            todo += node.decorator_list
            continue
        yield node
        if isinstance(node, (ast.With, ast.AsyncWith)):
            around = [item.context_expr for item in node.items]
            if any(map(_is_without_gradient, around)):
                continue
        todo += _parts(node, objects)


def _parts(node: ast.AST, objects: list[Any]) -> Iterable[ast.AST]:
    """Without the branch that settings of all these objects rule out."""
    if not isinstance(node, (ast.If, ast.IfExp)):
        return ast.iter_child_nodes(node)
    taken = {setting_of(node.test, one) for one in objects}
    if taken not in ({True}, {False}):
        return ast.iter_child_nodes(node)
    if isinstance(node, ast.If):
        return node.body if True in taken else node.orelse
    return [node.body if True in taken else node.orelse]


def _before(body: list[ast.stmt], until: int | None) -> Iterator[ast.AST]:
    """Statements that begin up to this line, and whole loops around it."""
    for one in body:
        if until is None or (one.end_lineno or 0) < until:
            yield one
        elif one.lineno <= until and isinstance(one, _LOOPS):
            yield one
        elif one.lineno <= until:
            blocks = [value for _, value in ast.iter_fields(one) if _is_block(value)]
            inner = {id(part) for block in blocks for part in block}
            parts = ast.iter_child_nodes(one)
            yield from (part for part in parts if id(part) not in inner)
            for block in blocks:
                yield from _before(block, until)


def _is_block(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], ast.stmt)


def _is_without_gradient(context: ast.expr) -> bool:
    """Is it no_grad() or the like, as a decorator or around statements?"""
    called = context.func if isinstance(context, ast.Call) else context
    if isinstance(called, ast.Attribute):
        return called.attr in _WITHOUT_GRADIENT
    return isinstance(called, ast.Name) and called.id in _WITHOUT_GRADIENT


def _named(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that may lead to a function: of variables, attributes, and in texts."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def calls_in(code: Code) -> set[str]:
    """Names of what it calls itself."""
    called = (node.func for node in code.nodes() if isinstance(node, ast.Call))
    return {
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in called
        if isinstance(one, (ast.Attribute, ast.Name))
    }
