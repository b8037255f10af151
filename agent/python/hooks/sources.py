"""The source of the user's functions, as far as it can be read."""

from __future__ import annotations

import ast
import sys
import sysconfig
import types
from typing import TYPE_CHECKING

from _traincheck.source_files import file_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType
    from types import FrameType
    from typing import Any

    from traincheck_core import Core

    from _traincheck.source_files import Definition

    Body = list[ast.stmt]

_FRAMES = 32
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_PATHS = sysconfig.get_paths()
_INSTALLED = (_PATHS["stdlib"], _PATHS["platstdlib"], "<frozen")
_PACKAGES = ("/site-packages/", "/dist-packages/")
_ASKS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_ASKS_NO_NUMBER = frozenset(("all", "any", "hasattr", "isinstance"))
_WRAPPERS = 4  # decorators around a function


def frames() -> Iterator[FrameType]:
    """What runs now, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def is_of_user(path: str) -> bool:
    """Is the file no part of an installed package?"""
    return not path.startswith(_INSTALLED) and not any(p in path for p in _PACKAGES)


def definition_of(code: CodeType) -> Definition | None:
    """None: the source cannot be read."""
    functions = file_of(code.co_filename).functions
    return functions.get(code.co_firstlineno, {}).get(code.co_name)


def body_of(code: CodeType) -> Body:
    """Empty: the source cannot be read."""
    definition = definition_of(code)
    return [] if definition is None else definition.body


def own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Of the function itself, and not of those within it."""
    todo = list(body)
    while todo:
        node = todo.pop()
        if not isinstance(node, _NESTED):
            yield node
            todo.extend(ast.iter_child_nodes(node))


def site_of(core: Core, names: dict[str, Any], line: int) -> int:
    """Number of a line of the module that has these names; 0: not known."""
    file = names.get("__file__")
    if not isinstance(file, str):
        return 0
    # Names of files may have bytes that are no text.
    return core.site_at(file.encode("utf-8", "replace").decode(), line, "")


def meaning(value: ast.expr, names: dict[str, Any]) -> Any:
    """Of a name of the module's, or of an attribute of one."""
    if isinstance(value, ast.Name):
        return names.get(value.id)
    if isinstance(value, ast.Attribute):
        owner = meaning(value.value, names)
        if isinstance(owner, types.ModuleType):
            return vars(owner).get(value.attr)
    return None


def unwrapped(function: types.FunctionType) -> types.FunctionType:
    """Without its decorators."""
    for _ in range(_WRAPPERS):
        wrapped = getattr(function, "__wrapped__", None)
        if not isinstance(wrapped, types.FunctionType):
            break
        function = wrapped
    return function


def waits(function: types.FunctionType) -> bool:
    """May a call of it do nothing on purpose? Also where its source cannot be read."""
    body = body_of(unwrapped(function).__code__)
    if not body:
        return True
    return any(
        isinstance(node, (ast.If, ast.IfExp, ast.While)) and _asks(node.test)
        for node in own_nodes(body)
    )


def _asks(test: ast.expr) -> bool:
    """Does a condition depend on more than flags and what there is?"""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and any(
            isinstance(operator, _ASKS) for operator in node.ops
        ):
            return True
        if isinstance(node, ast.BinOp):
            return True
        if isinstance(node, ast.Call):
            called = node.func
            name = called.id if isinstance(called, ast.Name) else None
            if name not in _ASKS_NO_NUMBER:
                return True
    return False
