"""Files of the user's source: read once, and kept until somebody forgets them.

A library that is installed as editable is the user's, too: of a hundred thousand lines
no more are read than a training's first step can wait for.
"""

from __future__ import annotations

import ast
import linecache
from typing import NamedTuple, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Definition = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef

_MOST_LINES = 20_000  # of all files that are kept: about 0.3 s
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class SourceFile(NamedTuple):
    # By their first lines and names; the file's own statements are <module> in line 1.
    functions: dict[int, dict[str, Definition]]
    owners: dict[int, ast.ClassDef]  # classes, by the ids of their methods' definitions


class _Kept:
    def __init__(self) -> None:
        self.files: dict[str, SourceFile] = {}
        self.lines = 0
        self.are_cut = False


_kept = _Kept()


def file_of(path: str) -> SourceFile:
    """Empty: it cannot be read, or is too long."""
    file = _kept.files.get(path)
    if file is None:
        file = _kept.files[path] = _read(path)
    return file


def are_cut() -> bool:
    """Has a file not been read because there are too many lines?"""
    return _kept.are_cut


def forget() -> None:
    global _kept
    _kept = _Kept()


def _read(path: str) -> SourceFile:
    file = SourceFile({}, {})
    lines = linecache.getlines(path)
    if not lines:
        return file
    if _kept.lines + len(lines) > _MOST_LINES:
        _kept.are_cut = True
        return file
    _kept.lines += len(lines)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):  # it may have been changed
        return file
    file.functions[1] = {"<module>": tree}
    for node in _statements(tree):
        if isinstance(node, _FUNCTIONS):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            file.functions.setdefault(first, {})[node.name] = node
        elif isinstance(node, ast.ClassDef):
            methods = (one for one in node.body if isinstance(one, _FUNCTIONS))
            file.owners.update((id(one), node) for one in methods)
    return file


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Nothing within expressions is looked for: no function stands there."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        for block in _BLOCKS:
            todo.extend(getattr(node, block, ()))
